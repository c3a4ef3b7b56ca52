/* The gated delta rule (Yang, Kautz, Hatamizadeh 2024).
 *   gdn_gates       y[r] = e^(rate * softplus(a + dt_bias)) of each head, then sigmoid(b) of each
 *     y       [rows][2][heads] f32: a decay near 1 in bf16 would be off by half of what it takes away;  a, b [rows][heads] bf16
 *     grid    (rows, ceil(heads, 128))  block (128)
 *   gdn_recurrence  row by row, for each value head h with key head h / (v_heads / k_heads), or h mod k_heads with share 1:
 *                     d = beta (v - decay S^T k);  S = decay S + k d^T;  y = scale S^T q
 *     y, v    [rows][v_heads][v_dim];  q, k [rows][k_heads][k_dim], k_dim at most 256  bf16;  gates [rows][2][v_heads] f32
 *     state   [slot][v_heads][k_dim][v_dim] f32 (recurrent.cuh)
 *     grid    (seqs, v_heads, ceil(v_dim, 32))  block (128): 32 columns of S, each in the registers of four lanes
 *     bytes   seqs*v_heads*k_dim*v_dim*8, rows*(k_heads*k_dim*4 + v_heads*v_dim*4)
 * Columns of S are independent. Lane 4c + p of a warp has elements 16 i + 4 p .. + 3 of its column c over k_dim: the sums over k_dim are
 * chains by index in a lane, then lane distance 1 and 2. y comes from the old state: S_new^T q = decay S^T q + (k . q) d, so that a
 * row waits for one round of sums. The next row is on its way while this one is worked on. */
#include "load.cuh"
#include "overlap.cuh"
#include "recurrent.cuh"

enum { COLUMNS = 32, PARTS = 4, BLOCK = COLUMNS * PARTS, KEY_MAX = 256, RUN = 4 * PARTS };

extern "C" __global__ void __launch_bounds__(BLOCK)
    gdn_gates(float *y, const bf16 *a, const bf16 *b, const float *__restrict__ a_log,
              const float *__restrict__ dt_bias, int rows, int heads, int decay)
{
    await_predecessors();
    const int h = (int)blockIdx.y * BLOCK + (int)threadIdx.x;
    if ((int)blockIdx.x >= rows || h >= heads)
        return;
    const size_t at = (size_t)blockIdx.x * (size_t)heads + (size_t)h;
    y += (size_t)blockIdx.x * (size_t)(2 * heads);
    y[h] = expf(decay_rate(a_log[h], decay) * softplus(__bfloat162float(a[at]) + dt_bias[h]));
    y[heads + h] = 1.0f / (1.0f + expf(-__bfloat162float(b[at])));
}

/* The sum over the four lanes of a column, in each. */
__device__ __forceinline__ float column_sum(float v)
{
    v += __shfl_xor_sync(0xffffffffu, v, 1);
    return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

struct Gdn {
    bf16 *y;
    const bf16 *q, *k, *v;
    const float *gates;
    int k_heads, v_heads, k_dim, v_dim;
    float scale;
    int share;
};

/* A row's operands on their way from memory: the elements of k and q that this thread carries into shared memory, and what its
 * column takes. */
template <int KEYS> struct GdnRow {
    float q[KEYS / BLOCK], k[KEYS / BLOCK], v, decay, beta;
};

template <int KEYS> __device__ __forceinline__ GdnRow<KEYS> fetch(const Gdn &g, int row, int head, int column)
{
    const int key = g.share ? head % g.k_heads : head / (g.v_heads / g.k_heads);
    const size_t at = ((size_t)row * (size_t)g.k_heads + (size_t)key) * (size_t)g.k_dim;
    const float *gates = g.gates + (size_t)row * (size_t)(2 * g.v_heads);
    GdnRow<KEYS> r;

#pragma unroll
    for (int j = 0; j < KEYS / BLOCK; j++) {
        const int i = (int)threadIdx.x + j * BLOCK;
        r.q[j] = i < g.k_dim ? __bfloat162float(g.q[at + i]) : 0.0f;
        r.k[j] = i < g.k_dim ? __bfloat162float(g.k[at + i]) : 0.0f;
    }
    r.v = column < g.v_dim
              ? __bfloat162float(g.v[((size_t)row * (size_t)g.v_heads + (size_t)head) * (size_t)g.v_dim + column])
              : 0.0f;
    r.decay = gates[head];
    r.beta = gates[g.v_heads + head];
    return r;
}

/* KEYS: no less than k_dim. A sum over k_dim is the same whatever it is: what lies behind k_dim adds zeros. */
template <int KEYS> __device__ __forceinline__ void gdn(const Gdn &g, const SeqRows &s, float *state)
{
    constexpr int N = KEYS / RUN;
    __shared__ float4 key[2][KEYS / 4], query[2][KEYS / 4];
    const int head = (int)blockIdx.y, part = (int)threadIdx.x % PARTS;
    const int column = (int)blockIdx.z * COLUMNS + (int)threadIdx.x / PARTS;
    float S[N][4];

    if (s.first >= s.last)
        return;
    state += (s.slot * (size_t)g.v_heads + (size_t)head) * (size_t)g.k_dim * (size_t)g.v_dim + (size_t)column;
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int at = RUN * i + 4 * part + e;
            const bool mine = !s.begins && at < g.k_dim && column < g.v_dim;
            S[i][e] = mine ? state[(size_t)at * (size_t)g.v_dim] : 0.0f;
        }
    GdnRow<KEYS> now = fetch<KEYS>(g, s.first, head, column);
    for (int r = s.first; r < s.last; r++) {
        const int b = (r - s.first) % 2;
        GdnRow<KEYS> next;
        float seen = 0.0f, out = 0.0f, cross = 0.0f;

#pragma unroll
        for (int j = 0; j < KEYS / BLOCK; j++) {
            reinterpret_cast<float *>(key[b])[threadIdx.x + j * BLOCK] = now.k[j];
            reinterpret_cast<float *>(query[b])[threadIdx.x + j * BLOCK] = now.q[j];
        }
        __syncthreads(); /* one a row: this buffer is written again two rows on, behind the next row's barrier */
        next = fetch<KEYS>(g, min(r + 1, s.last - 1), head, column);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float4 k = key[b][4 * i + part], q = query[b][4 * i + part];
            seen = fmaf(S[i][0], k.x, seen), out = fmaf(S[i][0], q.x, out), cross = fmaf(k.x, q.x, cross);
            seen = fmaf(S[i][1], k.y, seen), out = fmaf(S[i][1], q.y, out), cross = fmaf(k.y, q.y, cross);
            seen = fmaf(S[i][2], k.z, seen), out = fmaf(S[i][2], q.z, out), cross = fmaf(k.z, q.z, cross);
            seen = fmaf(S[i][3], k.w, seen), out = fmaf(S[i][3], q.w, out), cross = fmaf(k.w, q.w, cross);
        }
        seen = column_sum(seen), out = column_sum(out), cross = column_sum(cross);
        const float d = now.beta * (now.v - now.decay * seen);
        out = fmaf(cross, d, now.decay * out);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float4 k = key[b][4 * i + part];
            S[i][0] = fmaf(k.x, d, now.decay * S[i][0]);
            S[i][1] = fmaf(k.y, d, now.decay * S[i][1]);
            S[i][2] = fmaf(k.z, d, now.decay * S[i][2]);
            S[i][3] = fmaf(k.w, d, now.decay * S[i][3]);
        }
        if (part == 0 && column < g.v_dim)
            g.y[((size_t)r * (size_t)g.v_heads + (size_t)head) * (size_t)g.v_dim + column] =
                __float2bfloat16_rn(g.scale * out);
        now = next;
    }
    asm volatile("" : "+l"(state)); /* addresses are made anew, not kept in registers from the loads on */
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int at = RUN * i + 4 * part + e;
            if (at < g.k_dim && column < g.v_dim)
                state[(size_t)at * (size_t)g.v_dim] = S[i][e];
        }
}

/* k_dim 128: with half of the registers, twice the blocks a multiprocessor. */
extern "C" __global__ void __launch_bounds__(BLOCK, 4)
    gdn_recurrence_128(bf16 *y, const bf16 *q, const bf16 *k, const bf16 *v, const float *gates, float *state,
                       const int *__restrict__ positions, const int *__restrict__ seq_start,
                       const int *__restrict__ state_slots, int k_heads, int v_heads, int k_dim, int v_dim, float scale,
                       int share)
{
    await_predecessors();
    gdn<128>(Gdn{y, q, k, v, gates, k_heads, v_heads, k_dim, v_dim, scale, share},
             seq_rows(positions, seq_start, state_slots, (int)blockIdx.x), state);
}

extern "C" __global__ void __launch_bounds__(BLOCK)
    gdn_recurrence(bf16 *y, const bf16 *q, const bf16 *k, const bf16 *v, const float *gates, float *state,
                   const int *__restrict__ positions, const int *__restrict__ seq_start,
                   const int *__restrict__ state_slots, int k_heads, int v_heads, int k_dim, int v_dim, float scale,
                   int share)
{
    await_predecessors();
    gdn<KEY_MAX>(Gdn{y, q, k, v, gates, k_heads, v_heads, k_dim, v_dim, scale, share},
                 seq_rows(positions, seq_start, state_slots, (int)blockIdx.x), state);
}
