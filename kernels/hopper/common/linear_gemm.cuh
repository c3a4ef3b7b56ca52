/* linear_gemm.cuh - the products of gemm.cuh as kernels.
 *   x  [rows][k] bf16    y [rows][n] bf16, logits [outs][n] f32    bias [n] f32 or NULL
 *   grid  (min(jobs, blocks that run at a time))   block 128 * (GROUPS + 1)   shared: what there is for each
 * What a fused kernel's ops would round to bf16 is rounded. */
#ifndef METRALE_LINEAR_GEMM_CUH
#define METRALE_LINEAR_GEMM_CUH
#include "gemm.cuh"
#include "matrix.cuh"

template <int GROUPS> __device__ __forceinline__ void consumers_sync()
{
    asm volatile("bar.sync 1, %0;" ::"n"(128 * GROUPS) : "memory");
}

__device__ __forceinline__ void unpack_8(float (&f)[8], uint4 v)
{
    const uint32_t w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        f[2 * i] = __uint_as_float(w[i] << 16);
        f[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
    }
}

__device__ __forceinline__ uint4 pack_8(const float (&f)[8])
{
    return make_uint4(pack_bf16(f[0], f[1]), pack_bf16(f[2], f[3]), pack_bf16(f[4], f[5]), pack_bf16(f[6], f[7]));
}

/* n of eight values at p, the whole at once where p allows it. */
__device__ __forceinline__ void store_8(bf16 *p, uint4 v, int n)
{
    if (n >= 8 && reinterpret_cast<uintptr_t>(p) % 16 == 0) {
        *reinterpret_cast<uint4 *>(p) = v;
        return;
    }
    const uint32_t w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (i < n)
            p[i] = __ushort_as_bfloat16((unsigned short)(w[i / 2] >> 16 * (i % 2)));
}

__device__ __forceinline__ uint4 fetch_8(const bf16 *p, int n)
{
    if (n >= 8 && reinterpret_cast<uintptr_t>(p) % 16 == 0)
        return *reinterpret_cast<const uint4 *>(p);
    uint32_t w[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (i < n)
            w[i / 2] |= (uint32_t)__bfloat16_as_ushort(p[i]) << 16 * (i % 2);
    return make_uint4(w[0], w[1], w[2], w[3]);
}

/* Sums to rows by way of shared memory, so that memory is written in whole pieces. Own has bias_of(jn, tile, row of the tile),
 * tile(jn, i) and emit(jn, row, piece, out): pieces are 8 outputs of the block. */
template <typename F, int GROUPS, int TOKENS, typename Own> struct Staged {
    enum { AFFINE = true, ATOM = TOKENS < 128 ? TOKENS : 128, PASS = ATOM < 64 ? ATOM : 64 };
    enum { PITCH = 64 * GROUPS + 8, OUT_BYTES = PASS * PITCH * 2 };

    const bf16 *in;
    int rows, k, jobs_n;

    __device__ __forceinline__ const bf16 *x(int r) const { return in + (size_t)r * k; }
    __device__ __forceinline__ void store(const float (&acc)[TOKENS / ATOM][ATOM / 2], uint8_t *out, int jn, int r0,
                                          int group, int warp, int lane) const
    {
        const Own &own = static_cast<const Own &>(*this);
        bf16 *const stage = reinterpret_cast<bf16 *>(out);
        const int i = 4 * group + warp, g = lane / 4;
        const uint8_t *tile = own.tile(jn, i);
        const float b0 = tile ? own.bias_of(jn, i, g) : 0.0f, b8 = tile ? own.bias_of(jn, i, g + 8) : 0.0f;
#pragma unroll
        for (int p = 0; p < TOKENS / PASS; p++) {
            consumers_sync<GROUPS>(); /* the last pieces are read */
#pragma unroll
            for (int e = 0; e < PASS / 2; e++) {
                const int token = e / 4 * 8 + lane % 4 * 2 + e % 2, r = g + e % 4 / 2 * 8;
                const float v = acc[p * PASS / ATOM][p * PASS % ATOM / 2 + e];
                if (tile)
                    stage[token * PITCH + 16 * i + r] =
                        __float2bfloat16_rn(gemm_finish<F>(tile, r, v) + (e % 4 / 2 ? b8 : b0));
            }
            consumers_sync<GROUPS>();
            const int n_rows = min((int)PASS, rows - r0 - p * PASS);
            for (int e = (int)threadIdx.x - 128; e < n_rows * Own::PIECES; e += 128 * GROUPS)
                own.emit(jn, r0 + p * PASS + e / Own::PIECES, e % Own::PIECES, stage + e / Own::PIECES * PITCH);
        }
    }
};

/* Up to three matrices with the same x; a residual goes with one. */
template <typename F, int GROUPS, int TOKENS>
struct LinearGemm : Staged<F, GROUPS, TOKENS, LinearGemm<F, GROUPS, TOKENS>> {
    enum { PIECES = 8 * GROUPS };
    Matrix a, b, c;
    const bf16 *residual;
    float scale;

    __device__ __forceinline__ LinearGemm(const bf16 *x, int rows_, int k_, Matrix a_, Matrix b_, Matrix c_,
                                          const bf16 *residual_, float scale_)
        : a(a_), b(b_), c(c_), residual(residual_), scale(scale_)
    {
        this->in = x;
        this->rows = rows_;
        this->k = k_;
        this->jobs_n = (a.tiles() + b.tiles() + c.tiles() + 4 * GROUPS - 1) / (4 * GROUPS);
    }
    __device__ __forceinline__ Matrix pick(int jn, int i, int *tile) const
    {
        const int t = 4 * GROUPS * jn + i, b0 = a.tiles(), c0 = b0 + b.tiles();
        *tile = t < b0 ? t : t < c0 ? t - b0 : t - c0;
        return t < b0 ? a : t < c0 ? b : c;
    }
    __device__ __forceinline__ const uint8_t *tile(int jn, int i) const
    {
        int t;
        const Matrix m = pick(jn, i, &t);
        return t < m.tiles() ? m.w + (size_t)t * frag_tile_bytes<F>(this->k) : nullptr;
    }
    __device__ __forceinline__ float bias_of(int jn, int i, int r) const
    {
        int t;
        const Matrix m = pick(jn, i, &t);
        return m.bias && 16 * t + r < m.n ? m.bias[16 * t + r] : 0.0f;
    }
    __device__ __forceinline__ void emit(int jn, int row, int piece, const bf16 *stage) const
    {
        int t;
        const Matrix m = pick(jn, piece / 2, &t);
        const int n0 = 16 * t + piece % 2 * 8, n = m.n - n0;
        if (n <= 0)
            return;
        uint4 v = *reinterpret_cast<const uint4 *>(stage + 8 * piece);
        const size_t at = (size_t)row * m.n + n0;
        if (residual) {
            float f[8], q[8];
            unpack_8(f, v);
            unpack_8(q, fetch_8(residual + at, n));
#pragma unroll
            for (int i = 0; i < 8; i++)
                f[i] = fmaf(f[i], scale, q[i]);
            v = pack_8(f);
        }
        store_8(m.y + at, v, n);
    }
};

/* y = silu(g . x) * (u . x): the first half of a block's tiles are g's. */
template <typename F, int GROUPS, int TOKENS> struct GateGemm : Staged<F, GROUPS, TOKENS, GateGemm<F, GROUPS, TOKENS>> {
    enum { PIECES = 4 * GROUPS, HALF = 2 * GROUPS };
    Matrix g, u;

    __device__ __forceinline__ GateGemm(const bf16 *x, int rows_, int k_, Matrix g_, Matrix u_) : g(g_), u(u_)
    {
        this->in = x;
        this->rows = rows_;
        this->k = k_;
        this->jobs_n = (g.tiles() + HALF - 1) / HALF;
    }
    __device__ __forceinline__ const uint8_t *tile(int jn, int i) const
    {
        const int t = HALF * jn + i % HALF;
        return t < g.tiles() ? (i < HALF ? g : u).w + (size_t)t * frag_tile_bytes<F>(this->k) : nullptr;
    }
    __device__ __forceinline__ float bias_of(int jn, int i, int r) const
    {
        const int n = 16 * (HALF * jn + i % HALF) + r;
        const float *bias = (i < HALF ? g : u).bias;
        return bias && n < g.n ? bias[n] : 0.0f;
    }
    __device__ __forceinline__ void emit(int jn, int row, int piece, const bf16 *stage) const
    {
        const int n0 = 16 * HALF * jn + 8 * piece, n = g.n - n0;
        if (n <= 0)
            return;
        float a[8], b[8];
        unpack_8(a, *reinterpret_cast<const uint4 *>(stage + 8 * piece));
        unpack_8(b, *reinterpret_cast<const uint4 *>(stage + 16 * HALF + 8 * piece));
#pragma unroll
        for (int i = 0; i < 8; i++)
            a[i] = silu(a[i]) * b[i];
        store_8(g.y + (size_t)row * g.n + n0, pack_8(a), n);
    }
};

/* Logits go out as they are. */
template <typename F, int GROUPS, int TOKENS> struct HeadGemm {
    enum { AFFINE = false, ATOM = TOKENS < 128 ? TOKENS : 128, OUT_BYTES = 0 };
    float *y;
    const bf16 *in;
    const uint8_t *w;
    const int *source;
    int rows, n, k, jobs_n;
    float scale, softcap;

    __device__ __forceinline__ const bf16 *x(int r) const { return in + (size_t)source[r] * k; }
    __device__ __forceinline__ const uint8_t *tile(int jn, int i) const
    {
        const int t = 4 * GROUPS * jn + i;
        return t < (n + 15) / 16 ? w + (size_t)t * frag_tile_bytes<F>(k) : nullptr;
    }
    __device__ __forceinline__ void store(const float (&acc)[TOKENS / ATOM][ATOM / 2], uint8_t *, int jn, int r0,
                                          int group, int warp, int lane) const
    {
        const int i = 4 * group + warp;
        const uint8_t *at = tile(jn, i);
#pragma unroll
        for (int t = 0; t < TOKENS / ATOM; t++)
#pragma unroll
            for (int e = 0; e < ATOM / 2; e++) {
                const int row = r0 + t * ATOM + e / 4 * 8 + lane % 4 * 2 + e % 2, r = lane / 4 + e % 4 / 2 * 8;
                const int c = 16 * (4 * GROUPS * jn + i) + r;
                if (row >= rows || c >= n)
                    continue;
                const float v = gemm_finish<F>(at, r, acc[t][e]) * scale;
                y[(size_t)row * n + c] = softcap > 0.0f ? softcap * tanhf(v / softcap) : v;
            }
    }
};

#define GEMM_KERNEL(GROUPS) extern "C" __global__ void __launch_bounds__(128 * (GROUPS + 1), GROUPS > 1 ? 1 : 2)

/* The entries of one format and one number of tokens: X the format's name in FAMILIES.toml, F its struct. */
#define GEMM_ENTRIES(X, F, GROUPS, TOKENS)                                                                             \
    GEMM_KERNEL(GROUPS)                                                                                                \
    gemm_##TOKENS##_##X(bf16 *y, const bf16 *x, const uint8_t *w, const float *bias, int rows, int n, int k)           \
    {                                                                                                                  \
        gemm_run<F, GROUPS, TOKENS>(                                                                                   \
            LinearGemm<F, GROUPS, TOKENS>(x, rows, k, {y, w, bias, n}, {}, {}, nullptr, 0.0f));                        \
    }                                                                                                                  \
    GEMM_KERNEL(GROUPS)                                                                                                \
    gemm_add_##TOKENS##_##X(bf16 *y, const bf16 *x, const uint8_t *w, const float *bias, const bf16 *r, int rows,      \
                            int n, int k, float scale)                                                                 \
    {                                                                                                                  \
        gemm_run<F, GROUPS, TOKENS>(LinearGemm<F, GROUPS, TOKENS>(x, rows, k, {y, w, bias, n}, {}, {}, r, scale));     \
    }                                                                                                                  \
    GEMM_KERNEL(GROUPS)                                                                                                \
    gemm_3_##TOKENS##_##X(bf16 *yq, bf16 *yk, bf16 *yv, const bf16 *x, const uint8_t *wq, const uint8_t *wk,           \
                          const uint8_t *wv, const float *bq, const float *bk, const float *bv, int rows, int nq,      \
                          int nk, int nv, int k)                                                                       \
    {                                                                                                                  \
        gemm_run<F, GROUPS, TOKENS>(LinearGemm<F, GROUPS, TOKENS>(x, rows, k, {yq, wq, bq, nq}, {yk, wk, bk, nk},      \
                                                                  {yv, wv, bv, nv}, nullptr, 0.0f));                   \
    }                                                                                                                  \
    GEMM_KERNEL(GROUPS)                                                                                                \
    gemm_gate_##TOKENS##_##X(bf16 *y, const bf16 *x, const uint8_t *wg, const uint8_t *wu, const float *bg,            \
                             const float *bu, int rows, int n, int k)                                                  \
    {                                                                                                                  \
        gemm_run<F, GROUPS, TOKENS>(GateGemm<F, GROUPS, TOKENS>(x, rows, k, {y, wg, bg, n}, {y, wu, bu, n}));          \
    }                                                                                                                  \
    GEMM_KERNEL(GROUPS)                                                                                                \
    gemm_head_##TOKENS##_##X(float *y, const bf16 *x, const uint8_t *w, const int *source, int outs, int n, int k,     \
                             float scale, float softcap)                                                               \
    {                                                                                                                  \
        gemm_run<F, GROUPS, TOKENS>(HeadGemm<F, GROUPS, TOKENS>{                                                       \
            y, x, w, source, outs, n, k, ((n + 15) / 16 + 4 * GROUPS - 1) / (4 * GROUPS), scale, softcap});            \
    }
#endif
