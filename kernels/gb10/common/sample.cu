/* sample: y[o] = x[o] after the output's bias and penalties, and its token to picks[o] (src/core/sample.h has the numbers).
 *   y, x     [outs][n] f32, n the vocabulary; y may be x
 *   samples  [outs] what is wanted; edits [...] biases, then tokens seen; picks [outs]
 *   tokens   [rows] i32, source [outs] i32: the row of an output, whose token ends the history
 *   grid     (outs)  block (THREADS): one row each, which stays in L2 between passes
 *   smem     8 ROOM: candidates of a cut
 *   bytes    outs*n*4 for each pass: greedy 1, a draw 3, top-k or top-p 4
 * Order: sums are of integers. A cut by top-k or top-p is looked for among the tokens that weigh at least e^-10 of the best,
 * where those fit into ROOM and are enough; else bit by bit over the row, 50 passes. */
#include "overlap.cuh"

typedef unsigned long long u64;

struct Sample {
    unsigned wants;
    float temperature;
    unsigned top_p;
    float min_p;
    int top_k;
    float repetition, frequency, presence;
    unsigned random_low, random_high, first_edit, n_bias, n_seen, penalties, in_prompt, unused;
};

struct Edit {
    int token;
    unsigned value;
};

struct Candidate {
    float logit;
    unsigned token;
};

/* What a cut keeps: greater keys, and of this key the tokens up to this one. */
struct Cut {
    unsigned key, token;
    __device__ bool keeps(unsigned k, unsigned t) const { return k > key || (k == key && t <= token); }
};

struct Row {
    const float *y;
    int n;
    float max, temperature;
    const Candidate *list;
    int listed;
};

constexpr int LANES = 32, WARPS = THREADS / LANES, AHEAD = 8;
constexpr unsigned IN_PROMPT = 0x80000000u, KEY_RULED_OUT = 0x007fffffu, KEYS_USABLE = 0xff000000u, NO_TOKEN = ~0u;
constexpr u64 LIKELY = 49917751; /* 2^40 e^-10 */

__device__ __forceinline__ unsigned order_key(float logit)
{
    const unsigned u = __float_as_uint(__fadd_rn(logit, 0.0f)); /* -0 becomes +0 */
    return u ^ ((unsigned)((int)u >> 31) | 0x80000000u);
}

/* 2^40 e^((logit - max) / temperature) */
__device__ __forceinline__ u64 weight(float logit, float max, float temperature)
{
    const float x = __fdiv_rn(__fsub_rn(logit, max), temperature);
    if (!(x > -28.0f))
        return 0;
    const u64 e = (u64)(unsigned)__fmul_rn(x, -16777216.0f) * 0xb8aa3b29u >> 23;
    const unsigned f = (unsigned)e;
    unsigned p = 0x00078809u;
    p = 0x0054a612u - __umulhi(p, f);
    p = 0x0274f388u - __umulhi(p, f);
    p = 0x0e353290u - __umulhi(p, f);
    p = 0x3d7f7506u - __umulhi(p, f);
    p = 0xb17217dfu - __umulhi(p, f);
    p = 0x80000000u - (__umulhi(p, f) >> 1);
    return (u64)p << 9 >> (unsigned)(e >> 32);
}

/* ---- over the block ---------------------------------------------------------------------------------------------- */

struct Sum {
    static __device__ __forceinline__ u64 of(u64 a, u64 b) { return a + b; }
};

struct Largest {
    static __device__ __forceinline__ u64 of(u64 a, u64 b) { return a > b ? a : b; }
};

template <class Op> __device__ __forceinline__ u64 over_warp(u64 v)
{
#pragma unroll
    for (int d = LANES / 2; d > 0; d /= 2)
        v = Op::of(v, __shfl_xor_sync(0xffffffffu, v, d));
    return v;
}

/* In every thread; shared [WARPS] is free again afterwards. */
template <class Op> __device__ __forceinline__ u64 over_block(u64 v, u64 *shared)
{
    static_assert(WARPS <= LANES && THREADS % LANES == 0, "whole warps, at most as many as a warp has lanes");
    v = over_warp<Op>(v);
    if (threadIdx.x % LANES == 0)
        shared[threadIdx.x / LANES] = v;
    __syncthreads();
    v = over_warp<Op>((int)threadIdx.x % LANES < WARPS ? shared[threadIdx.x % LANES] : 0);
    __syncthreads();
    return v;
}

/* f(token, logit) for each element of the row, by 16 bytes where they are aligned: rows begin anywhere. */
template <class F> __device__ __forceinline__ void each(const float *y, int n, F f)
{
    const int lead = min(n, (int)((16 - ((size_t)y & 15)) & 15) / 4), quads = (n - lead) / 4;
    const float4 *q = reinterpret_cast<const float4 *>(y + lead);

    if ((int)threadIdx.x < lead)
        f((int)threadIdx.x, y[threadIdx.x]);
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < quads; i += THREADS) {
        const float4 v = q[i];
        f(lead + 4 * i, v.x);
        f(lead + 4 * i + 1, v.y);
        f(lead + 4 * i + 2, v.z);
        f(lead + 4 * i + 3, v.w);
    }
    const int rest = lead + 4 * quads + (int)threadIdx.x;
    if (rest < n)
        f(rest, y[rest]);
}

/* ---- bias and penalties ------------------------------------------------------------------------------------------ */

__device__ __forceinline__ float penalised(const Sample &s, float logit, unsigned seen)
{
    const unsigned count = seen & ~IN_PROMPT;
    logit = logit > 0 ? __fdiv_rn(logit, s.repetition) : __fmul_rn(logit, s.repetition);
    return count > 0 ? __fsub_rn(logit, __fadd_rn(__fmul_rn((float)count, s.frequency), s.presence)) : logit;
}

__device__ __forceinline__ void apply_edits(const Sample &s, const Edit *edits, int own, float *y)
{
    const Edit *bias = edits + s.first_edit, *seen = bias + s.n_bias;
    __shared__ unsigned own_seen;

    for (unsigned i = threadIdx.x; i < s.n_bias; i += THREADS)
        y[bias[i].token] = __fadd_rn(y[bias[i].token], __uint_as_float(bias[i].value));
    if (threadIdx.x == 0)
        own_seen = s.in_prompt ? IN_PROMPT : 1;
    __syncthreads();
    if (!s.penalties)
        return;
    for (unsigned i = threadIdx.x; i < s.n_seen; i += THREADS)
        if (seen[i].token == own)
            own_seen = s.in_prompt ? seen[i].value | IN_PROMPT : seen[i].value + 1;
        else
            y[seen[i].token] = penalised(s, y[seen[i].token], seen[i].value);
    __syncthreads();
    if (threadIdx.x == 0)
        y[own] = penalised(s, y[own], own_seen);
    __syncthreads();
}

/* ---- the cut ----------------------------------------------------------------------------------------------------- */

/* The weight, or else the number, of the kept ones that have a greater key than `key`, or this key and a token below `below`. */
__device__ __noinline__ u64 amount(const Row &r, Cut cut, unsigned key, unsigned below, bool by_weight, u64 *shared)
{
    u64 sum = 0;
    auto add = [&](unsigned token, float logit) {
        const unsigned k = order_key(logit);
        if ((k > key || (k == key && token < below)) && cut.keeps(k, token))
            sum += by_weight ? weight(logit, r.max, r.temperature) : 1;
    };

    if (r.list)
        for (int i = (int)threadIdx.x; i < r.listed; i += THREADS)
            add(r.list[i].token, r.list[i].logit);
    else
        for (int i = (int)threadIdx.x; i < r.n; i += THREADS)
            add((unsigned)i, r.y[i]);
    return over_block<Sum>(sum, shared);
}

/* Narrows the cut to the shortest best part that has `need`, which the row has. */
__device__ __forceinline__ Cut shorten(const Row &r, Cut cut, u64 need, bool by_weight, u64 *shared)
{
    unsigned key = 0, token = 0;

    for (unsigned bit = 0x80000000u; bit > 0; bit >>= 1)
        if (amount(r, cut, key | bit, NO_TOKEN, by_weight, shared) >= need)
            key |= bit;
    if (amount(r, cut, key, NO_TOKEN, false, shared) - amount(r, cut, key, 0, false, shared) == 1)
        return {key, NO_TOKEN};
    for (unsigned bit = 0x80000000u >> __clz(r.n); bit > 0; bit >>= 1)
        if (amount(r, cut, key, token | bit, by_weight, shared) < need)
            token |= bit;
    return {key, token};
}

__device__ __forceinline__ u64 share_of(u64 total, unsigned top_p)
{
    const u64 share = (total >> 32) * top_p + ((total & 0xffffffffu) * top_p >> 32);
    return share > 0 ? share : 1;
}

__device__ __forceinline__ Cut cut_row(const Sample &s, const float *y, int n, float max, Candidate *room, u64 *shared)
{
    __shared__ int found;
    const Row all = {y, n, max, s.temperature, nullptr, 0};
    Cut cut = {0, 0};
    u64 total = 0;

    if (threadIdx.x == 0)
        found = 0;
    __syncthreads();
    each(y, n, [&](int i, float logit) {
        const u64 w = weight(logit, max, s.temperature);
        total += w;
        if (w >= LIKELY) {
            const int at = atomicAdd(&found, 1);
            if (at < ROOM)
                room[at] = {logit, (unsigned)i};
        }
    });
    total = over_block<Sum>(total, shared); /* and the list is there */
    const bool fits = found <= ROOM;
    const Row likely = {y, n, max, s.temperature, room, fits ? found : 0};

    if (s.top_k > 0 && s.top_k < n) {
        const Row &r = fits && found >= s.top_k ? likely : all;
        cut = shorten(r, cut, (u64)s.top_k, false, shared);
        total = amount(r, cut, 0, NO_TOKEN, true, shared);
    }
    if (s.top_p > 0) {
        const u64 need = share_of(total, s.top_p);
        const bool enough = fits && amount(likely, cut, 0, NO_TOKEN, true, shared) >= need;
        cut = shorten(enough ? likely : all, cut, need, true, shared);
    }
    return cut;
}

/* ---- the draw ---------------------------------------------------------------------------------------------------- */

/* Each warp has neighbouring tokens, so that the sums in front of its own say whether the goal is among them. */
__device__ __forceinline__ int draw(const Sample &s, const float *y, int n, float max, Cut cut, u64 *shared)
{
    __shared__ int drawn;
    const u64 least = (u64)__fmul_rn(s.min_p, 1099511627776.0f);
    const int lane = (int)threadIdx.x % LANES, warp = (int)threadIdx.x / LANES;
    const int span = (n + WARPS - 1) / WARPS, from = min(n, warp * span), to = min(n, from + span);
    u64 mine = 0, before = 0, total = 0;
    auto weigh = [&](int i) -> u64 {
        if (i >= to)
            return 0;
        const u64 w = weight(y[i], max, s.temperature);
        return w >= least && cut.keeps(order_key(y[i]), (unsigned)i) ? w : 0;
    };

#pragma unroll 4
    for (int i = from + lane; i < to; i += LANES)
        mine += weigh(i);
    mine = over_warp<Sum>(mine);
    if (lane == 0)
        shared[warp] = mine;
    __syncthreads();
    for (int w = 0; w < WARPS; w++) {
        before += w < warp ? shared[w] : 0;
        total += shared[w];
    }
    const u64 goal = __umul64hi(total, (u64)s.random_high << 32 | s.random_low);
    if (before <= goal && goal < before + mine) { /* one warp, as a whole */
        int at = from;
        for (;; at += AHEAD * LANES) { /* the goal is in front of `to` */
            u64 sum = 0;
#pragma unroll
            for (int j = 0; j < AHEAD; j++)
                sum += weigh(at + j * LANES + lane);
            sum = over_warp<Sum>(sum);
            if (before + sum > goal)
                break;
            before += sum;
        }
        for (;; at += LANES) {
            u64 sum = weigh(at + lane);
            for (int d = 1; d < LANES; d *= 2) {
                const u64 left = __shfl_up_sync(0xffffffffu, sum, d);
                sum += lane >= d ? left : 0;
            }
            const unsigned reached = __ballot_sync(0xffffffffu, before + sum > goal);
            if (reached) {
                if (lane == 0)
                    drawn = at + __ffs((int)reached) - 1;
                break;
            }
            before += __shfl_sync(0xffffffffu, sum, LANES - 1);
        }
    }
    __syncthreads();
    return drawn;
}

/* ---- the kernel -------------------------------------------------------------------------------------------------- */

extern "C" __global__ void __launch_bounds__(THREADS)
    sample(float *y_rows, const float *x_rows, const Sample *samples, const Edit *edits, int4 *picks, const int *tokens,
           const int *source, int outs, int n)
{
    extern __shared__ Candidate room[];
    __shared__ u64 shared[WARPS];

    await_predecessors();
    if ((int)blockIdx.x >= outs)
        return;
    const Sample s = samples[blockIdx.x];
    float *y = y_rows + (size_t)blockIdx.x * (size_t)n;
    const float *x = x_rows + (size_t)blockIdx.x * (size_t)n;
    int4 *pick = picks + blockIdx.x;

    if (y != x) {
        for (int i = (int)threadIdx.x; i < n; i += THREADS)
            y[i] = x[i];
        __syncthreads();
    }
    if (s.wants == 0)
        return;
    apply_edits(s, edits, tokens[source[blockIdx.x]], y);

    u64 top = 0; /* the key, then the complement of the token: of equal keys the lowest token is the largest */
    each(y, n, [&](int i, float logit) {
        const unsigned k = order_key(logit) - KEY_RULED_OUT; /* of a negative NaN it wraps around */
        const u64 both = (u64)min(k, KEYS_USABLE + 1) << 32 | ~(unsigned)i;
        top = both > top ? both : top;
    });
    top = over_block<Largest>(top, shared);
    int best = (int)~(unsigned)top;
    const unsigned key = (unsigned)(top >> 32);
    if (key > KEYS_USABLE || key == 0) {
        if (threadIdx.x == 0)
            *pick = key ? make_int4(-1, __float_as_int(y[best]), best, 0) : make_int4(-2, 0, 0, 0);
        return;
    }
    const float max = y[best];
    if (s.temperature != 0 && s.top_k != 1) {
        Cut cut = {0, 0};
        if ((s.top_k > 0 && s.top_k < n) || s.top_p > 0)
            cut = cut_row(s, y, n, max, room, shared);
        best = draw(s, y, n, max, cut, shared);
    }
    u64 total = 0;
    if (s.wants & 2) {
        each(y, n, [&](int, float logit) { total += weight(logit, max, 1.0f); });
        total = over_block<Sum>(total, shared);
    }
    if (threadIdx.x == 0)
        *pick = make_int4(best, __float_as_int(__fsub_rn(y[best], max)), (int)(unsigned)total,
                          (int)(unsigned)(total >> 32));
}
