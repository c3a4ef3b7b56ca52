/* paged_attention for many rows by wgmma: y[r][h] = softmax(scale * q[r][h] . K^T) V over the tokens of the row's sequence that it
 * may see: positions max(0, pos - window + 1) .. pos (window 0: all up to pos).
 *   y, q       [rows][n_heads * HEAD]  bf16 row-major
 *   kpool, vpool  kv.cuh, bf16
 *   positions [rows]; seq_start [seqs + 1]; table [seqs][max_blocks] physical blocks
 *   sinks      [n_heads] f32 or NULL: an extra score that takes weight and gives nothing
 *   grid       (tiles, n_kv_heads), tiles = ceil(rows, rows of a tile) + seqs: enough, since a tile holds rows of one sequence;
 *              group = n_heads / n_kv_heads, a tile has LINES / group rows;  block (384)
 *   smem       1,024 + 2 * HEAD * (LINES + SLOTS * SPAN)
 *   bytes      K and V of a sequence once for each of its tiles, from L2
 *
 * A tile's lines are (row, head) pairs that share a KV head: line i is row i / group of the tile, head i % group. One warpgroup
 * copies K and V, SPAN tokens at a time, into a ring of slots; two have 64 lines each and go through the spans that any line sees,
 * with an online softmax (Milakov, Gimelshein 2018). While a warpgroup makes weights of a span's scores, its product of the span
 * before with its values is under way, and the other's products (Shah et al. 2024, FlashAttention-3): they take turns in issuing.
 * What a line does not see has weight 0. Spans begin at multiples of SPAN, so a line's bits do not depend on other rows but for
 * spans of weight 0, which change nothing.
 *
 * Scores are compared as they come, so that the factor to powers of two is part of the exponent's one fma; with a cap, or a scale
 * that does not keep order, they are made first. */
#include "find_tile.cuh"
#include "kv.cuh"
#include "ptx.cuh"
#include "wgmma_attention.cuh"

#define LOG2E 1.4426950408889634f

enum { WARP = 32, GROUP = 128, CONSUMERS = 2, LINES = 64 * CONSUMERS, BLOCK = GROUP * (1 + CONSUMERS) };

struct Attention {
    bf16 *y;
    const bf16 *q, *kpool, *vpool;
    const int *positions, *seq_start, *table;
    const float *sinks;
    int seqs, max_blocks, n_heads, n_kv, window;
    float scale, softcap;
};

/* ---- instructions ----------------------------------------------------------------------------------------------------- */

__device__ __forceinline__ float power_of_two(float x)
{
    float y;
    asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float reciprocal(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ uint32_t pack_two(float lo, float hi)
{
    __nv_bfloat162 v = __floats2bfloat162_rn(lo, hi);
    return *reinterpret_cast<uint32_t *>(&v);
}

/* 16 bytes, zeros where `there` is false; then nothing is read. */
__device__ __forceinline__ void copy_async(uint32_t to, const bf16 *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}

/* The barrier gets this thread's arrival when its copies so far have landed. */
__device__ __forceinline__ void copies_arrive(uint64_t *b)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(b)) : "memory");
}

__device__ __forceinline__ void copies_wait_all()
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}

/* What this thread wrote to shared memory, or saw written by others' copies, comes before the wgmma behind it. */
__device__ __forceinline__ void written_for_wgmma()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Named barriers; 0 is __syncthreads. */
__device__ __forceinline__ void meet(int barrier, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

__device__ __forceinline__ void announce(int barrier, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

enum { BARRIER_TURN = 1, BARRIER_GROUP = BARRIER_TURN + CONSUMERS };

/* ---- layout ------------------------------------------------------------------------------------------------------------ */

/* Bytes from the start of a tile of ROWS rows to the 16-byte piece of a row. */
template <int ROWS> __device__ __forceinline__ uint32_t piece_at(int row, int piece)
{
    return (uint32_t)(piece / 8 * ROWS * 128 + row * 128 + (piece ^ row) % 8 * 16);
}

/* A place in the ring and how often it was passed. */
template <int SLOTS> struct Place {
    int slot;
    uint32_t parity = 0;
    __device__ __forceinline__ void advance(int by)
    {
        slot += by;
        if (slot >= SLOTS) {
            slot -= SLOTS;
            parity ^= 1;
        }
    }
};

/* What a tile is made of and sees: rows row0 .. row1 - 1 of sequence seq, from position pos0 on; tokens begin .. end - 1. */
struct Tile {
    int seq, row0, row1, pos0, begin, end;
};

/* This block's tile, of no rows behind the last one. A step's tables are there before its first launch. */
__device__ __forceinline__ Tile make_tile(const Attention &a)
{
    Tile t = {0, 0, 0, 0, 0, 0};

    /* The last tiles, which see most, begin first. */
    if (!find_tile(a.seq_start, a.seqs, LINES / (a.n_heads / a.n_kv), (int)(gridDim.x - 1 - blockIdx.x), t.seq, t.row0,
                   t.row1))
        return t;
    t.pos0 = a.positions[t.row0]; /* rows of a sequence are neighbours in position */
    t.end = t.pos0 + t.row1 - t.row0;
    t.begin = a.window > 0 && t.pos0 >= a.window ? t.pos0 - a.window + 1 : 0;
    return t;
}

/* ---- copies ------------------------------------------------------------------------------------------------------------ */

/* K and V of each span in turn to the ring. What no line sees is zeros, so that it adds none of what the pool may hold there. */
template <int HEAD, int SPAN, int SLOTS>
__device__ __forceinline__ void copy_spans(const Attention &a, const Tile tile, uint32_t ring, uint64_t *full,
                                           uint64_t *empty)
{
    constexpr int PIECES = HEAD / VEC, ROWS = GROUP / PIECES, PASSES = SPAN / ROWS, BLOCKS = SPAN / KV_TOKENS;
    static_assert(KV_TOKENS % ROWS == 0, "a pass lies in one block");
    const int tid = (int)threadIdx.x, piece = tid % PIECES, row = tid / PIECES;
    const int stride = a.n_kv * KV_TOKENS * HEAD;
    const size_t offset = (size_t)((int)blockIdx.y * KV_TOKENS + row) * HEAD + piece * VEC;
    const int *const blocks = a.table + (size_t)tile.seq * (size_t)a.max_blocks;
    Place<SLOTS> fill = {0};

    for (int from = tile.begin / SPAN * SPAN; from < tile.end; from += SPAN)
#pragma unroll 1
        for (int part = 0; part < 2; part++) {
            const bf16 *const pool = (part ? a.vpool : a.kpool) + offset;
            const uint32_t to = ring + (uint32_t)fill.slot * (SPAN * HEAD * 2);
            int low = tile.begin - from, high = tile.end - from, block[BLOCKS];
            asm volatile("" : "+r"(low), "+r"(high)); /* what follows from them is not worth registers across parts */
#pragma unroll
            for (int b = 0; b < BLOCKS; b++)
                block[b] = b * KV_TOKENS < high && (b + 1) * KV_TOKENS > low ? blocks[from / KV_TOKENS + b] : 0;
            barrier_wait(&empty[fill.slot], fill.parity ^ 1);
#pragma unroll
            for (int i = 0; i < PASSES; i++) {
                const int r = i * ROWS;
                copy_async(to + piece_at<SPAN>(r % 8 + row, piece) + (uint32_t)(r / 8 * 1024),
                           pool + (size_t)block[r / KV_TOKENS] * (size_t)stride + r % KV_TOKENS * HEAD,
                           r + row >= low && r + row < high);
            }
            copies_arrive(&full[fill.slot]);
            fill.advance(1);
        }
    copies_wait_all();
}

/* This warpgroup's queries to its 64 rows of the tile. */
template <int HEAD>
__device__ __forceinline__ void copy_queries(const Attention &a, const Tile &tile, uint32_t queries, int group)
{
    constexpr int PIECES = HEAD / VEC;
    const int tid = (int)threadIdx.x % GROUP, heads = a.n_heads / a.n_kv, lines = (tile.row1 - tile.row0) * heads;

#pragma unroll 4
    for (int u = tid; u < 64 * PIECES; u += GROUP) {
        const int at = 64 * group + u / PIECES,
                  line = min(at, lines - 1); /* behind the last: never written, any will do */
        const size_t head =
            (size_t)(tile.row0 + line / heads) * (size_t)a.n_heads + (size_t)((int)blockIdx.y * heads + line % heads);
        copy_async(queries + piece_at<LINES>(at, u % PIECES), a.q + head * HEAD + u % PIECES * VEC, true);
    }
    copies_wait_all();
    written_for_wgmma();
    meet(BARRIER_GROUP + group, GROUP);
}

/* ---- softmax ----------------------------------------------------------------------------------------------------------- */

/* What turns q . k into a score, in units of ln 2: the factor of the exponent, or all of it beforehand. */
struct Scoring {
    bool made; /* scores are made beforehand, factor is 1 */
    float factor, scale, cap;
    __device__ __forceinline__ Scoring(float scale_, float softcap)
        : made(softcap > 0.0f || !(scale_ > 0.0f)), factor(made ? 1.0f : scale_ * LOG2E),
          scale(softcap > 0.0f ? scale_ / softcap * 2.0f * LOG2E : scale_ * LOG2E),
          cap(softcap > 0.0f ? softcap * LOG2E : 0.0f)
    {
    }
    /* tanh x = 1 - 2 / (1 + e^2x) */
    __device__ __forceinline__ float make(float s) const
    {
        return cap > 0.0f ? cap * (1.0f - 2.0f * reciprocal(1.0f + power_of_two(s * scale))) : s * scale;
    }
};

/* Of a lane's lines g (0) and g + 8 (1): largest score so far, this lane's share of the sum of weights, the last token seen (-1:
 * no line) and the last one before the window. */
struct Line {
    float top = -INFINITY, sum = 0.0f;
    int last, before;
};

/* The largest or the sum over the four lanes of a line. */
__device__ __forceinline__ float line_max(float v)
{
    v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
    return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}

__device__ __forceinline__ float line_sum(float v)
{
    v += __shfl_xor_sync(0xffffffffu, v, 1);
    return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

/* Scores of the tokens from `from` on: -INFINITY where a line does not see one. s[4n + c] belongs to token 8n + 2t + c % 2, line
 * c / 2. */
template <int N> __device__ __forceinline__ void mask(float (&s)[N], const Line (&line)[2], int from)
{
    const int first = from + 2 * ((int)threadIdx.x % 4);
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int token = first + i / 4 * 8 + i % 2;
        const Line &l = line[i / 2 % 2];
        s[i] = token <= l.last && token > l.before ? s[i] : -INFINITY;
    }
}

/* Scores to weights; the lines' tops move on: sums so far count keep[] of what they did. A line that has seen no token yet keeps
 * 0. */
template <int N> __device__ __forceinline__ void soften(float (&s)[N], Line (&line)[2], float (&keep)[2], float factor)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float top = line[i].top, sum = 0.0f;
#pragma unroll
        for (int n = 2 * i; n < N; n += 4)
            top = fmaxf(top, fmaxf(s[n], s[n + 1]));
        top = line_max(top);
        const float base = top == -INFINITY ? 0.0f : top * factor;
        keep[i] = power_of_two(fmaf(line[i].top, factor, -base));
#pragma unroll
        for (int n = 2 * i; n < N; n += 4) {
            s[n] = power_of_two(fmaf(s[n], factor, -base));
            s[n + 1] = power_of_two(fmaf(s[n + 1], factor, -base));
            sum += s[n] + s[n + 1];
        }
        line[i].sum = fmaf(line[i].sum, keep[i], sum);
        line[i].top = top;
    }
}

/* ---- products ---------------------------------------------------------------------------------------------------------- */

/* Scores of 64 lines by SPAN tokens. */
template <int HEAD, int SPAN>
__device__ __forceinline__ void issue_scores(float (&s)[SPAN / 2], uint64_t queries, uint64_t keys)
{
    asm volatile("" : "+l"(queries)); /* HEAD / 16 descriptors are not worth registers across spans */
#pragma unroll
    for (int k = 0; k < HEAD / 16; k++) {
        const uint64_t q = queries + (uint64_t)(k / 4 * (LINES * 128 >> 4) + k % 4 * 2),
                       b = keys + (uint64_t)(k / 4 * (SPAN * 128 >> 4) + k % 4 * 2);
        if (k == 0)
            wgmma_scores<SPAN, 0>(s, q, b);
        else
            wgmma_scores<SPAN, 1>(s, q, b);
    }
    wgmma_commit();
}

/* Weights as they came from scores, rounded, times values. The sums are PARTS times up to 128 elements of the head. */
template <int SPAN, int PARTS, int COLUMNS>
__device__ __forceinline__ void issue_values(float (&out)[PARTS][COLUMNS / 2], const uint32_t (&p)[SPAN / 16][4],
                                             uint64_t values)
{
#pragma unroll
    for (int k = 0; k < SPAN / 16; k++)
#pragma unroll
        for (int part = 0; part < PARTS; part++)
            wgmma_values<COLUMNS>(out[part], p[k],
                                  values + (uint64_t)(k * (16 * 128 >> 4) + part * (COLUMNS / 64) * (SPAN * 128 >> 4)));
    wgmma_commit();
}

/* ---- the kernel -------------------------------------------------------------------------------------------------------- */

/* One warpgroup's 64 lines over all spans. */
template <int HEAD, int SPAN, int SLOTS>
__device__ __forceinline__ void attend_lines(const Attention &a, const Tile tile, uint8_t *shared, uint64_t *full,
                                             uint64_t *empty, int group)
{
    constexpr int COLUMNS = HEAD < 128 ? HEAD : 128, PARTS = HEAD / COLUMNS, PIECES = HEAD / VEC;
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP % 4, g = lane / 4, t = lane % 4;
    const int heads = a.n_heads / a.n_kv, lines = (tile.row1 - tile.row0) * heads, line0 = 64 * group + 16 * warp;
    const uint32_t q_at = shared_address(shared), ring = q_at + LINES * HEAD * 2;
    const uint64_t queries = wgmma_tile(q_at + (uint32_t)group * (64 * 128));
    const Scoring scoring(a.scale, a.softcap);
    Place<SLOTS> k = {0}, v = {1};
    Line line[2];
    float s[SPAN / 2], out[PARTS][COLUMNS / 2], keep[2];
    uint32_t p[SPAN / 16][4];

    copy_queries<HEAD>(a, tile, q_at, group);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int at = line0 + g + 8 * i;
        line[i].last = at < lines ? tile.pos0 + at / heads : -1;
        line[i].before = a.window > 0 ? line[i].last - a.window : -1;
    }
#pragma unroll
    for (int part = 0; part < PARTS; part++)
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++)
            out[part][i] = 0.0f;

    auto at_slot = [&](int slot) { return ring + (uint32_t)slot * (SPAN * HEAD * 2); };
    auto release = [&](int slot) {
        if (lane == 0)
            barrier_arrive(&empty[slot]);
    };
    auto weigh = [&](int from) {
        wgmma_written(s);
        if (scoring.made) {
#pragma unroll
            for (int i = 0; i < SPAN / 2; i++)
                s[i] = scoring.make(s[i]);
        }
        const bool whole =
            from + SPAN - 1 <= tile.pos0 && (a.window <= 0 || from > tile.end - 1 - a.window); /* every line sees all */
        if (!whole)
            mask(s, line, from);
        soften(s, line, keep, scoring.factor);
    };
    auto round_weights = [&]() {
#pragma unroll
        for (int i = 0; i < SPAN / 4; i++)
            p[i / 4][i % 4] = pack_two(s[2 * i], s[2 * i + 1]);
    };

    int from = tile.begin / SPAN * SPAN;
    barrier_wait(&full[k.slot], k.parity);
    written_for_wgmma();
    wgmma_begin();
    issue_scores<HEAD, SPAN>(s, queries, wgmma_tile(at_slot(k.slot)));
    wgmma_wait<0>();
    release(k.slot);
    k.advance(2);
    weigh(from);
    barrier_wait(&full[v.slot], v.parity);
    round_weights();
    if (group == 1 && from + SPAN < tile.end)
        announce(BARRIER_TURN, CONSUMERS * GROUP);
    for (from += SPAN; from < tile.end; from += SPAN) {
        barrier_wait(&full[k.slot], k.parity);
        written_for_wgmma();
        meet(BARRIER_TURN + group, CONSUMERS * GROUP);
        wgmma_begin();
        issue_scores<HEAD, SPAN>(s, queries, wgmma_tile(at_slot(k.slot)));
        issue_values<SPAN, PARTS, COLUMNS>(out, p, wgmma_values_tile<SPAN>(at_slot(v.slot)));
        if (group == 0 || from + SPAN < tile.end) /* the last turn is nobody's */
            announce(BARRIER_TURN + (group ^ 1), CONSUMERS * GROUP);
        wgmma_wait<1>();
        release(k.slot);
        k.advance(2);
        const int used = v.slot;
        weigh(from);
        v.advance(2);
        barrier_wait(&full[v.slot], v.parity); /* here, so that the compiler leaves the weights in front of the wait */
        wgmma_wait<0>();
        release(used);
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            wgmma_written(out[part]);
#pragma unroll
            for (int i = 0; i < COLUMNS / 2; i++)
                out[part][i] *= keep[i / 2 % 2];
        }
        round_weights();
    }
    written_for_wgmma();
    wgmma_begin();
    issue_values<SPAN, PARTS, COLUMNS>(out, p, wgmma_values_tile<SPAN>(at_slot(v.slot)));
    wgmma_wait<0>();
#pragma unroll
    for (int part = 0; part < PARTS; part++)
        wgmma_written(out[part]);

    /* The warp's lines go where its queries were, then out in whole pieces. */
    meet(BARRIER_GROUP + group, GROUP);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int at = line0 + g + 8 * i;
        const float top = line[i].top * scoring.factor;
        float sum = line_sum(line[i].sum), scale = 1.0f;
        if (a.sinks && at < lines) { /* joined last: what was summed is relative to the largest score without it */
            const float sink = a.sinks[(int)blockIdx.y * heads + at % heads] * LOG2E, both = fmaxf(top, sink);
            scale = power_of_two(top - both);
            sum = fmaf(sum, scale, power_of_two(sink - both));
        }
        scale /= sum;
#pragma unroll
        for (int piece = 0; piece < PIECES; piece++) {
            const float *o = &out[piece / (COLUMNS / 8)][piece % (COLUMNS / 8) * 4 + 2 * i];
            *reinterpret_cast<uint32_t *>(shared + piece_at<LINES>(at, piece) + 4 * t) =
                pack_two(o[0] * scale, o[1] * scale);
        }
    }
    __syncwarp();
#pragma unroll 4
    for (int u = lane; u < 16 * PIECES; u += WARP) {
        const int at = line0 + u / PIECES;
        const size_t head =
            (size_t)(tile.row0 + at / heads) * (size_t)a.n_heads + (size_t)((int)blockIdx.y * heads + at % heads);
        if (at < lines)
            *reinterpret_cast<uint4 *>(a.y + head * HEAD + u % PIECES * VEC) =
                *reinterpret_cast<const uint4 *>(shared + piece_at<LINES>(at, u % PIECES));
    }
}

template <int HEAD, int SPAN, int SLOTS> __device__ __forceinline__ void attend(const Attention &a)
{
    static_assert(SLOTS >= 4, "V of a span is let go with K of the next one");
    extern __shared__ __align__(1024) uint8_t shared_base[];
    __shared__ uint64_t full[SLOTS], empty[SLOTS];
    __shared__ Tile tile;
    uint8_t *const shared = shared_base + (1024 - shared_address(shared_base) % 1024) % 1024;
    const int group = (int)threadIdx.x / GROUP;

    launch_dependents();
    if (threadIdx.x == 0) {
        tile = make_tile(a);
        for (int i = 0; i < SLOTS; i++) {
            barrier_init(&full[i], GROUP);
            barrier_init(&empty[i], CONSUMERS * GROUP / WARP);
        }
        barrier_init_fence();
    }
    wait_for_predecessors();
    __syncthreads();
    if (tile.row0 == tile.row1)
        return;
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
        copy_spans<HEAD, SPAN, SLOTS>(a, tile, shared_address(shared) + LINES * HEAD * 2, full, empty);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
        attend_lines<HEAD, SPAN, SLOTS>(a, tile, shared, full, empty, group - 1);
    }
}

#define PAGED_ATTENTION(HEAD, SPAN, SLOTS)                                                                             \
    extern "C" __global__ void __launch_bounds__(BLOCK, 1) paged_attention_wgmma_##HEAD(                               \
        bf16 *y, const bf16 *q, const bf16 *kpool, const bf16 *vpool, const int *positions, const int *seq_start,      \
        const int *table, const float *sinks, int seqs, int max_blocks, int n_heads, int n_kv, float scale,            \
        int window, float softcap)                                                                                     \
    {                                                                                                                  \
        attend<HEAD, SPAN, SLOTS>({y, q, kpool, vpool, positions, seq_start, table, sinks, seqs, max_blocks, n_heads,  \
                                   n_kv, window, scale, softcap});                                                     \
    }

PAGED_ATTENTION(64, 128, 6)
PAGED_ATTENTION(128, 128, 6)
PAGED_ATTENTION(256, 64, 5)
