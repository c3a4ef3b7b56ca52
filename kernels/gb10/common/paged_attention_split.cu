/* paged_attention for few rows, at the speed of memory: y[r][h] = softmax(scale * q[r][h] . K^T) V over the tokens of the row's
 * sequence that it may see: positions max(0, pos - window + 1) .. pos (window 0: all up to pos).
 *   y, q       [rows][n_heads * HEAD]  bf16 row-major
 *   kpool, vpool  kv.cuh, bf16
 *   positions, row_seq [rows]; table [seqs][max_blocks] physical blocks
 *   sinks      [n_heads] f32 or NULL: an extra score that takes weight and gives nothing
 *   grid       (splits, n_kv_heads * ceil(group, 16), rows), group = n_heads / n_kv_heads;  block (128)
 *   smem       RING, a build constant, + 4 * lines * HEAD + 32 * (HEAD + 8): blocks, a sum, queries
 *   workspace  f32 [rows][grid.y][PARTS][lines][HEAD + 2], lines = min(16, group); not used when splits is 1
 *   bytes      K and V of what the row sees, once for all heads that share them
 *
 * A row's blocks of 16 tokens are cut into at most PARTS parts of equal size, by how many it sees and nothing else. A part is the
 * work of four warps: warp w takes blocks w, w + 4 .. of it, each with an online softmax (Milakov, Gimelshein 2018) of its own, fed
 * from a ring of its own. Warps are joined in order, then parts in order, so that a row's bits depend neither on other rows nor on
 * how many splits the grid has: a split is a run of parts. The split that comes last joins the parts of all. */
#include "attention.cuh"
#include "overlap.cuh"
#include "warp.cuh"

/* LEAST: blocks of a part, where there are so many. ALONE: up to so many blocks are one part, since to join parts takes longer than to
 * read a few more blocks. */
enum { WARPS = 4, BLOCK = WARPS * WARP, LINES = 16, PARTS = 16, LEAST = 8, ALONE = 16 };

/* In bf16: a block of K or V, and how many pairs of them a warp's ring holds. The sums of a part's warps lie in the rings when those
 * are empty. */
template <int HEAD> struct Ring {
    static constexpr int SIZE = KV_TOKENS * Rows<HEAD>::STRIDE, STAGES = RING / (WARPS * 2 * SIZE * (int)sizeof(bf16));
    static_assert(STAGES >= 1, "the ring holds a block of K and V for each warp");
    static_assert(WARPS * LINES * HEAD * (int)sizeof(float) <= RING, "the warps' sums fit in");
};

/* How many splits of a row and KV head have come to their end; the last one leaves 0 for the next launch. */
enum { MOST_ROWS = 128, MOST_HEADS = 256 };
__device__ unsigned arrived[MOST_ROWS * MOST_HEADS];

struct Attention {
    bf16 *y;
    const bf16 *q, *kpool, *vpool;
    const int *positions, *row_seq, *table;
    const float *sinks;
    float *workspace;
    int max_blocks, n_heads, n_kv, window;
    float scale, softcap;
};

/* The sums over some tokens of one line: weights relative to 2^top. */
struct Sum {
    float top, weight;
};

/* a, then b: what a's and b's values are to be multiplied by. */
__device__ __forceinline__ Sum join(Sum a, Sum b, float &keep_a, float &keep_b)
{
    const float top = fmaxf(a.top, b.top);
    keep_a = exp2f(a.top - top);
    keep_b = exp2f(b.top - top);
    return {top, __fmaf_rn(a.weight, keep_a, __fmul_rn(b.weight, keep_b))};
}

template <int HEAD> __device__ __forceinline__ void attend(const Attention &a)
{
    typedef Ring<HEAD> R;
    extern __shared__ uint4 smem[];
    __shared__ float warp_top[WARPS][LINES], warp_weight[WARPS][LINES];
    __shared__ Sum running[2][LINES];
    __shared__ bool last;
    start_next();
    const int tid = (int)threadIdx.x, lane = tid % WARP, warp = tid / WARP, g = lane / 4, t = lane % 4;
    const int row = (int)blockIdx.z, group = a.n_heads / a.n_kv, tiles = (group + LINES - 1) / LINES;
    const int kvh = (int)blockIdx.y / tiles, head0 = kvh * group + (int)blockIdx.y % tiles * LINES;
    const int most = min(LINES, group), lines = min(most, (kvh + 1) * group - head0);

    /* What the row sees, and this split's parts of it. */
    const int pos = a.positions[row], first = a.window > 0 && pos >= a.window ? pos - a.window + 1 : 0;
    const int block0 = first / KV_TOKENS, n_blocks = pos / KV_TOKENS + 1 - block0;
    const int wanted = n_blocks <= ALONE ? 1 : min(PARTS, (n_blocks + LEAST - 1) / LEAST);
    const int part_blocks = (n_blocks + WARPS * wanted - 1) / (WARPS * wanted) * WARPS;
    const int n_parts = (n_blocks + part_blocks - 1) / part_blocks;
    const int run = (n_parts + (int)gridDim.x - 1) / (int)gridDim.x, splits = (n_parts + run - 1) / run;
    const int part0 = (int)blockIdx.x * run, part1 = min(part0 + run, n_parts);
    const int *const blocks = a.table + (size_t)a.row_seq[row] * (size_t)a.max_blocks;

    bf16 *const ring = reinterpret_cast<bf16 *>(smem) + warp * R::STAGES * 2 * R::SIZE;
    float *const slots = reinterpret_cast<float *>(smem);             /* [WARPS][most][HEAD], over the rings */
    float *const joined = reinterpret_cast<float *>(smem) + RING / 4; /* [most][HEAD] */
    bf16 *const queries = reinterpret_cast<bf16 *>(joined + most * HEAD);

    /* Starts the copies of block i of this warp in a part that begins at block `begin`; the lanes hold the table's entries of 32 of
     * them. */
    int entries = 0;
    auto fetch = [&](int i, int begin, int end) {
        const int block = begin + warp + WARPS * i;
        if (i % WARP == 0)
            entries = block + WARPS * lane < end ? blocks[block + WARPS * lane] : 0;
        const int physical = __shfl_sync(0xffffffffu, entries, i % WARP);
        if (block < end) {
            const size_t from = kv_at(physical * KV_TOKENS, kvh, a.n_kv, HEAD);
            bf16 *const to = ring + i % R::STAGES * 2 * R::SIZE;
#pragma unroll
            for (int u = lane; u < KV_TOKENS * HEAD / VEC; u += WARP) {
                const int token = u / (HEAD / VEC), at = Rows<HEAD>::at(token, u % (HEAD / VEC));
                const bool seen = block * KV_TOKENS + token >= first && block * KV_TOKENS + token <= pos;
                copy_async(to + at, a.kpool + from + u * VEC, seen);
                copy_async(to + R::SIZE + at, a.vpool + from + u * VEC, seen);
            }
        }
        copies_commit();
    };

    /* Rows of a sequence stand one behind the other, so that this step writes no token of the row's in front of `fresh`: what earlier
     * steps wrote is fetched while this step's kernels end. */
    const int begin = block0 + part0 * part_blocks, end = min(begin + part_blocks, block0 + n_blocks);
    const int fresh = part0 < part1 ? pos - row : 0;
    auto early = [&](int i) { return (begin + warp + WARPS * i + 1) * KV_TOKENS <= fresh; };
#pragma unroll
    for (int i = 0; i < R::STAGES; i++)
        if (early(i))
            fetch(i, begin, end);
    wait_for_all_before();
    if (part0 >= part1)
        return;
#pragma unroll
    for (int i = 0; i < R::STAGES; i++)
        if (!early(i))
            fetch(i, begin, end);

    /* Queries: lines behind the group's heads are zeros. */
    const bf16 *const query = a.q + ((size_t)row * (size_t)a.n_heads + (size_t)head0) * HEAD;
    for (int u = tid; u < LINES * HEAD / VEC; u += BLOCK) {
        const int line = u / (HEAD / VEC);
        *reinterpret_cast<uint4 *>(queries + Rows<HEAD>::at(line, u % (HEAD / VEC))) =
            line < lines ? *reinterpret_cast<const uint4 *>(query + u * VEC) : make_uint4(0, 0, 0, 0);
    }
    for (int e = tid; e < lines * HEAD; e += BLOCK)
        joined[e] = 0.0f;
    if (tid < lines)
        running[part0 % 2][tid] = a.sinks ? Sum{a.sinks[head0 + tid] * LOG2E, 1.0f} : Sum{-INFINITY, 0.0f};
    __syncthreads();

    const Scoring scoring(a.scale, a.softcap);
    const size_t part_size = (size_t)most * (HEAD + 2);
    float *const parts = a.workspace + ((size_t)row * gridDim.y + blockIdx.y) * PARTS * part_size;
    for (int part = part0; part < part1; part++) {
        const int from = block0 + part * part_blocks, to = min(from + part_blocks, block0 + n_blocks);
        float out[1][HEAD / 8][4];
        Softmax x;

#pragma unroll
        for (int i = 0; i < R::STAGES; i++)
            if (part > part0)
                fetch(i, from, to);
#pragma unroll
        for (int d = 0; d < HEAD / 8; d++)
            out[0][d][0] = out[0][d][1] = out[0][d][2] = out[0][d][3] = 0.0f;
        for (int i = 0, block = from + warp; block < to; block += WARPS, i++) {
            const bf16 *const keys = ring + i % R::STAGES * 2 * R::SIZE;
            float s[1][2][4] = {};

            copies_wait<R::STAGES - 1>();
            __syncwarp(); /* every lane's copies have landed */
#pragma unroll
            for (int k = 0; k < HEAD / 16; k++) {
                uint32_t q[1][4];
                load_queries<HEAD>(q[0], queries, 2 * k);
                add_scores<HEAD>(s, q, keys, 2 * k);
            }
#pragma unroll
            for (int n = 0; n < 2; n++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const int token = block * KV_TOKENS + 8 * n + 2 * t + j % 2;
                    s[0][n][j] = token >= first && token <= pos ? scoring(s[0][n][j]) : -INFINITY;
                }
            soften(s[0], x, out[0]);
            add_values<HEAD>(out, s, keys + R::SIZE);
            __syncwarp(); /* every lane has read the stage */
            fetch(i + R::STAGES, from, to);
        }

        /* The warps' sums, joined in order. */
        copies_wait<0>();
        __syncthreads(); /* all rings are empty */
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const int line = g + 8 * n;
            const float weight = line_sum(x.sum[n]);
            if (line < lines) {
                float *const slot = slots + (warp * most + line) * HEAD + 2 * t;
#pragma unroll
                for (int d = 0; d < HEAD / 8; d++)
                    *reinterpret_cast<float2 *>(slot + 8 * d) = make_float2(out[0][d][2 * n], out[0][d][2 * n + 1]);
                if (t == 0) {
                    warp_top[warp][line] = x.top[n];
                    warp_weight[warp][line] = weight;
                }
            }
        }
        __syncthreads();
        for (int e = tid; e < lines * HEAD; e += BLOCK) {
            const int line = e / HEAD;
            Sum sum = {warp_top[0][line], warp_weight[0][line]};
            float value = slots[e], keep_a, keep_b;
#pragma unroll
            for (int w = 1; w < WARPS; w++) {
                if (warp_top[w][line] == -INFINITY) /* it had no block */
                    continue;
                sum = join(sum, Sum{warp_top[w][line], warp_weight[w][line]}, keep_a, keep_b);
                value = __fmaf_rn(value, keep_a, __fmul_rn(slots[w * most * HEAD + e], keep_b));
            }
            if (splits > 1) {
                parts[part * part_size + e] = value;
                if (e % HEAD == 0)
                    *reinterpret_cast<Sum *>(parts + part * part_size + most * HEAD + 2 * line) = sum;
            } else {
                sum = join(running[part % 2][line], sum, keep_a, keep_b);
                joined[e] = __fmaf_rn(joined[e], keep_a, __fmul_rn(value, keep_b));
                if (e % HEAD == 0)
                    running[(part + 1) % 2][line] = sum;
            }
        }
        __syncthreads(); /* the rings may be filled again, and `running` is up to date */
    }

    bf16 *const y = a.y + ((size_t)row * (size_t)a.n_heads + (size_t)head0) * HEAD;
    if (splits > 1) {
        __threadfence();
        __syncthreads();
        if (tid == 0)
            last = atomicInc(&arrived[row * (int)gridDim.y + (int)blockIdx.y], (unsigned)splits - 1) ==
                   (unsigned)splits - 1;
        __syncthreads();
        if (!last)
            return;
        __threadfence();
    }
    for (int e = tid; e < lines * HEAD; e += BLOCK) {
        const int line = e / HEAD;
        Sum sum = running[part1 % 2][line];
        float value = joined[e];
        if (splits > 1) {
            sum = a.sinks ? Sum{a.sinks[head0 + line] * LOG2E, 1.0f} : Sum{-INFINITY, 0.0f};
            value = 0.0f;
#pragma unroll 4
            for (int part = 0; part < n_parts; part++) {
                const float *const p = parts + part * part_size;
                const float2 s = __ldcg(reinterpret_cast<const float2 *>(p + most * HEAD + 2 * line));
                float keep_a, keep_b;
                sum = join(sum, Sum{s.x, s.y}, keep_a, keep_b);
                value = __fmaf_rn(value, keep_a, __fmul_rn(__ldcg(p + e), keep_b));
            }
        }
        y[e] = __float2bfloat16_rn(value / sum.weight);
    }
}

#define PAGED_ATTENTION(entry, HEAD)                                                                                   \
    extern "C" __global__ void __launch_bounds__(BLOCK, 2)                                                             \
        entry(bf16 *y, const bf16 *q, const bf16 *kpool, const bf16 *vpool, const int *positions, const int *row_seq,  \
              const int *table, const float *sinks, float *workspace, int max_blocks, int n_heads, int n_kv,           \
              float scale, int window, float softcap)                                                                  \
    {                                                                                                                  \
        attend<HEAD>({y, q, kpool, vpool, positions, row_seq, table, sinks, workspace, max_blocks, n_heads, n_kv,      \
                      window, scale, softcap});                                                                        \
    }

PAGED_ATTENTION(paged_attention_split_64, 64)
PAGED_ATTENTION(paged_attention_split_80, 80)
PAGED_ATTENTION(paged_attention_split_96, 96)
PAGED_ATTENTION(paged_attention_split_128, 128)
PAGED_ATTENTION(paged_attention_split_256, 256)
/* One split, no workspace, any number of rows. */
PAGED_ATTENTION(paged_attention_rows_64, 64)
PAGED_ATTENTION(paged_attention_rows_80, 80)
PAGED_ATTENTION(paged_attention_rows_96, 96)
PAGED_ATTENTION(paged_attention_rows_128, 128)
PAGED_ATTENTION(paged_attention_rows_256, 256)
