/* paged_attention for many rows, on tensor cores: y[r][h] = softmax(scale * q[r][h] . K^T) V over the tokens of the row's sequence
 * that it may see: positions max(0, pos - window + 1) .. pos (window 0: all up to pos).
 *   y, q       [rows][n_heads * HEAD]  bf16 row-major
 *   kpool, vpool  kv.cuh, bf16
 *   positions [rows]; seq_start [seqs + 1]; table [seqs][max_blocks] physical blocks
 *   sinks      [n_heads] f32 or NULL: an extra score that takes weight and gives nothing
 *   grid       (tiles, n_kv_heads), tiles = ceil(rows, rows of a tile) + seqs: enough, since a tile holds rows of one sequence;
 *              group = n_heads / n_kv_heads, a tile has LINES / group rows;  block (128), LINES = 64 M
 *   smem       two spans of tokens, K and V, and the queries: 2 * row * (4 * SPAN + LINES) bytes, row = Rows<HEAD>::STRIDE
 *   bytes      K and V of a sequence once for each of its tiles, from L2
 *
 * A tile's lines are (row, head) pairs that share a KV head: line i is row i / group of the tile, head i % group. Each of four warps
 * has M m16 tiles of them and goes through the tokens that any line sees, SPAN at a time, with an online softmax (Milakov, Gimelshein 2018);
 * the next span's K and V are on their way meanwhile. What a line does not see has weight 0. Spans begin at
 * multiples of SPAN, so a line's bits do not depend on other rows but for spans of weight 0, which change nothing. */
#include "attention.cuh"
#include "find_tile.cuh"
#include "warp.cuh"

enum { WARPS = 4, BLOCK = WARPS * WARP };

struct Attention {
    bf16 *y;
    const bf16 *q, *kpool, *vpool;
    const int *positions, *seq_start, *table;
    const float *sinks;
    int seqs, max_blocks, n_heads, n_kv, window;
    float scale, softcap;
};

template <int HEAD, int M, int SPAN> __device__ __forceinline__ void attend(const Attention &a)
{
    constexpr int LINES = 16 * M * WARPS, STRIDE = Rows<HEAD>::STRIDE, UNITS = HEAD / VEC;
    extern __shared__ uint4 smem[];
    const int tid = (int)threadIdx.x, lane = tid % WARP, warp = tid / WARP, g = lane / 4, t = lane % 4;
    const int group = a.n_heads / a.n_kv, kvh = (int)blockIdx.y, rows_of_tile = LINES / group;
    bf16 *const shared = reinterpret_cast<bf16 *>(smem);
    int seq, row0, row1;

    /* The last tiles, which see most, begin first. */
    if (!find_tile(a.seq_start, a.seqs, rows_of_tile, (int)(gridDim.x - 1 - blockIdx.x), seq, row0, row1))
        return;
    const int lines = (row1 - row0) * group;
    const int *const blocks = a.table + (size_t)seq * (size_t)a.max_blocks;

    /* Rows of a sequence are neighbours in position: the tile sees tokens begin .. end - 1. */
    const int pos0 = a.positions[row0], end = pos0 + row1 - row0;
    const int begin = a.window > 0 && pos0 >= a.window ? pos0 - a.window + 1 : 0;

    /* Spans of K and V, two in turn. What no line sees is zeros, so that it adds none of what the pool may hold there. */
    auto fetch = [&](int from, int stage) {
        bf16 *const to = shared + stage * 2 * SPAN * STRIDE;
        for (int u = tid; from < end && u < SPAN * UNITS; u += BLOCK) {
            const int token = from + u / UNITS, at = Rows<HEAD>::at(u / UNITS, u % UNITS);
            const bool seen = token >= begin && token < end;
            const size_t source =
                seen ? kv_at(blocks[token / KV_TOKENS] * KV_TOKENS + token % KV_TOKENS, kvh, a.n_kv, HEAD) +
                           u % UNITS * VEC
                     : 0;
            copy_async(to + at, a.kpool + source, seen);
            copy_async(to + SPAN * STRIDE + at, a.vpool + source, seen);
        }
        copies_commit();
    };
    const int span0 = begin / SPAN * SPAN;
    bf16 *const queries = shared + 4 * SPAN * STRIDE;
    for (int u = tid; u < LINES * UNITS; u += BLOCK) {
        const int line = min(u / UNITS, lines - 1); /* lines behind the last are never written: anything will do */
        const size_t at =
            ((size_t)(row0 + line / group) * (size_t)a.n_heads + (size_t)(kvh * group + line % group)) * HEAD;
        copy_async(queries + Rows<HEAD>::at(u / UNITS, u % UNITS), a.q + at + u % UNITS * VEC, true);
    }
    fetch(span0, 0);

    /* Of this lane's lines g and g + 8 of each m16 tile: the last token seen, -1 for no line. */
    int pos[M][2];
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int line = 16 * (M * warp + m) + g + 8 * i;
            pos[m][i] = line < lines ? pos0 + line / group : -1;
        }

    const Scoring scoring(a.scale, a.softcap);
    float out[M][HEAD / 8][4];
    Softmax x[M];
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int d = 0; d < HEAD / 8; d++)
            out[m][d][0] = out[m][d][1] = out[m][d][2] = out[m][d][3] = 0.0f;

    for (int from = span0, stage = 0; from < end; from += SPAN, stage ^= 1) {
        const bf16 *const keys = shared + stage * 2 * SPAN * STRIDE, *const values = keys + SPAN * STRIDE;
        copies_wait<0>();
        __syncthreads(); /* the span has landed, and all warps are done with the other stage */
        fetch(from + SPAN, stage ^ 1);
        float s[M][SPAN / 8][4];
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int n = 0; n < SPAN / 8; n++)
                s[m][n][0] = s[m][n][1] = s[m][n][2] = s[m][n][3] = 0.0f;
#pragma unroll(HEAD > 96 ? 4 : HEAD / 16) /* addresses of all steps at once would take registers */
        for (int k = 0; k < HEAD / 16; k++) {
            uint32_t q[M][4];
#pragma unroll
            for (int m = 0; m < M; m++)
                load_queries<HEAD>(q[m], queries + 16 * (M * warp + m) * STRIDE, 2 * k);
            add_scores<HEAD>(s, q, keys, 2 * k);
        }
        const bool whole =
            from + SPAN - 1 <= pos0 && (a.window <= 0 || from > end - 1 - a.window); /* every line sees all */
#pragma unroll
        for (int m = 0; m < M; m++) {
#pragma unroll
            for (int n = 0; n < SPAN / 8; n++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const int token = from + 8 * n + 2 * t + j % 2, last = pos[m][j / 2];
                    const bool seen = whole || (token <= last && (a.window <= 0 || token > last - a.window));
                    s[m][n][j] = seen ? scoring(s[m][n][j]) : -INFINITY;
                }
            soften(s[m], x[m], out[m]);
        }
        add_values<HEAD>(out, s, values);
    }

#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int line = 16 * (M * warp + m) + g + 8 * i;
            float sum = line_sum(x[m].sum[i]), scale = 1.0f;
            if (line >= lines)
                continue;
            const int head = kvh * group + line % group;
            if (a.sinks) { /* joined last: what was summed is relative to the largest score without it */
                const float sink = a.sinks[head] * LOG2E, top = fmaxf(x[m].top[i], sink);
                scale = exp2f(x[m].top[i] - top);
                sum = fmaf(sum, scale, exp2f(sink - top));
            }
            scale /= sum;
            bf16 *const y = a.y + ((size_t)(row0 + line / group) * (size_t)a.n_heads + (size_t)head) * HEAD + 2 * t;
#pragma unroll
            for (int d = 0; d < HEAD / 8; d++)
                *reinterpret_cast<uint32_t *>(y + 8 * d) =
                    pack_two(out[m][d][2 * i] * scale, out[m][d][2 * i + 1] * scale);
        }
}

#define PAGED_ATTENTION(HEAD, M, SPAN)                                                                                 \
    extern "C" __global__ void __launch_bounds__(BLOCK) paged_attention_tiles_##HEAD(                                  \
        bf16 *y, const bf16 *q, const bf16 *kpool, const bf16 *vpool, const int *positions, const int *seq_start,      \
        const int *table, const float *sinks, int seqs, int max_blocks, int n_heads, int n_kv, float scale,            \
        int window, float softcap)                                                                                     \
    {                                                                                                                  \
        attend<HEAD, M, SPAN>({y, q, kpool, vpool, positions, seq_start, table, sinks, seqs, max_blocks, n_heads,      \
                               n_kv, window, scale, softcap});                                                         \
    }

PAGED_ATTENTION(64, 2, 64)
PAGED_ATTENTION(80, 2, 64)
PAGED_ATTENTION(96, 2, 32)
PAGED_ATTENTION(128, 2, 32)
PAGED_ATTENTION(256, 1, 32)
