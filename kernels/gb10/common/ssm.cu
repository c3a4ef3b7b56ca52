/* ssm_update: the selective state space of Mamba-2 (Dao, Gu 2024), row by row, for each head h of group h / (n_heads / n_groups):
 *   d = softplus(dt + dt_bias);  S = e^(rate d) S + (d x) B^T;  y = S C + skip x
 *   y      [rows][n_heads][head_dim];  dt [rows][n_heads]  bf16
 *   x      [rows]: x [n_heads][head_dim], B [n_groups][state_dim], C [n_groups][state_dim]  bf16;  state_dim at most 256
 *   a_log, dt_bias, skip [n_heads] f32
 *   state  [slot][n_heads][head_dim][state_dim] f32 (recurrent.cuh)
 *   grid   (seqs, n_heads, ceil(head_dim, 16))  block (128): 16 rows of S, each in the registers of eight lanes
 *   bytes  seqs*n_heads*head_dim*state_dim*8, rows*(x + y)*2; B and C are shared by the heads of a group through L2
 * Rows of S are independent. Lane p of a row's eight has elements 32 i + 4 p .. + 3: chains by index, then lane distance 1, 2, 4. The
 * next row is on its way while this one is worked on. */
#include "load.cuh"
#include "overlap.cuh"
#include "recurrent.cuh"

enum { LINES = 16, PARTS = 8, BLOCK = LINES * PARTS, STATE_MAX = 256, RUN = 4 * PARTS };

struct Ssm {
    bf16 *y;
    const bf16 *x, *dt;
    int heads, dim, groups, size;
    float rate, bias, skip;
};

/* A row's operands on their way from memory: the elements of B and C that this thread carries into shared memory, the x of its
 * line, the head's step. */
struct SsmRow {
    float b[STATE_MAX / BLOCK], c[STATE_MAX / BLOCK], x, dt;
};

__device__ __forceinline__ SsmRow fetch(const Ssm &m, int row, int head, int line)
{
    const bf16 *x = m.x + (size_t)row * (size_t)(m.heads * m.dim + 2 * m.groups * m.size);
    const bf16 *b = x + m.heads * m.dim + head / (m.heads / m.groups) * m.size, *c = b + m.groups * m.size;
    SsmRow r;

#pragma unroll
    for (int j = 0; j < STATE_MAX / BLOCK; j++) {
        const int i = (int)threadIdx.x + j * BLOCK;
        r.b[j] = i < m.size ? __bfloat162float(b[i]) : 0.0f;
        r.c[j] = i < m.size ? __bfloat162float(c[i]) : 0.0f;
    }
    r.x = line < m.dim ? __bfloat162float(x[head * m.dim + line]) : 0.0f;
    r.dt = __bfloat162float(m.dt[(size_t)row * (size_t)m.heads + (size_t)head]);
    return r;
}

/* N: runs of 32 elements of state_dim. */
template <int N> __device__ __forceinline__ void ssm(const Ssm &m, const SeqRows &s, float *state)
{
    __shared__ float4 vb[2][STATE_MAX / 4], vc[2][STATE_MAX / 4];
    const int head = (int)blockIdx.y, part = (int)threadIdx.x % PARTS;
    const int line = (int)blockIdx.z * LINES + (int)threadIdx.x / PARTS;
    float S[N][4];

    state += ((s.slot * (size_t)m.heads + (size_t)head) * (size_t)m.dim + (size_t)line) * (size_t)m.size;
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int at = RUN * i + 4 * part + e;
            S[i][e] = !s.begins && at < m.size && line < m.dim ? state[at] : 0.0f;
        }
    SsmRow now = fetch(m, s.first, head, line);
    for (int r = s.first; r < s.last; r++) {
        const int half = (r - s.first) % 2;
        SsmRow next;
        float sum = 0.0f;

#pragma unroll
        for (int j = 0; j < STATE_MAX / BLOCK; j++) {
            reinterpret_cast<float *>(vb[half])[threadIdx.x + j * BLOCK] = now.b[j];
            reinterpret_cast<float *>(vc[half])[threadIdx.x + j * BLOCK] = now.c[j];
        }
        __syncthreads(); /* one a row: this buffer is written again two rows on, behind the next row's barrier */
        next = fetch(m, min(r + 1, s.last - 1), head, line);
        const float d = softplus(now.dt + m.bias), decay = expf(m.rate * d), dx = d * now.x;
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float4 b = vb[half][8 * i + part], c = vc[half][8 * i + part];
            S[i][0] = fmaf(dx, b.x, decay * S[i][0]), sum = fmaf(S[i][0], c.x, sum);
            S[i][1] = fmaf(dx, b.y, decay * S[i][1]), sum = fmaf(S[i][1], c.y, sum);
            S[i][2] = fmaf(dx, b.z, decay * S[i][2]), sum = fmaf(S[i][2], c.z, sum);
            S[i][3] = fmaf(dx, b.w, decay * S[i][3]), sum = fmaf(S[i][3], c.w, sum);
        }
#pragma unroll
        for (int lanes = 1; lanes < PARTS; lanes *= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
        if (part == 0 && line < m.dim)
            m.y[((size_t)r * (size_t)m.heads + (size_t)head) * (size_t)m.dim + line] =
                __float2bfloat16_rn(fmaf(m.skip, now.x, sum));
        now = next;
    }
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int at = RUN * i + 4 * part + e;
            if (at < m.size && line < m.dim)
                state[at] = S[i][e];
        }
}

extern "C" __global__ void __launch_bounds__(BLOCK)
    ssm_update(bf16 *y, const bf16 *x, const bf16 *dt, const float *__restrict__ a_log,
               const float *__restrict__ dt_bias, const float *__restrict__ skip, float *state,
               const int *__restrict__ positions, const int *__restrict__ seq_start,
               const int *__restrict__ state_slots, int n_heads, int head_dim, int n_groups, int state_dim, int decay)
{
    await_predecessors();
    const int h = (int)blockIdx.y;
    const Ssm m = {y, x, dt, n_heads, head_dim, n_groups, state_dim, decay_rate(a_log[h], decay), dt_bias[h], skip[h]};
    const SeqRows s = seq_rows(positions, seq_start, state_slots, (int)blockIdx.x);

    if (s.first >= s.last)
        return;
    if (state_dim <= STATE_MAX / 2)
        ssm<STATE_MAX / 2 / RUN>(m, s, state);
    else
        ssm<STATE_MAX / RUN>(m, s, state);
}
