/* Norms without a plain weight, and what goes with them. One block a row, all f32.
 *   l2_norm         y = x / sqrt(sum(x^2) + eps) over each group of `group` elements;  y may be x
 *   gated_rms_norm  over each group: y = x / rms * w * silu(z), or with gate before it t = x * silu(z), y = t / rms * w;  y may be x
 *     w [weights]: of a group, or of the whole row
 *   relu2           y = max(x, 0)^2;  y may be x
 *   concat          each of `groups` parts of y: a part of xa, then one of xb
 * Order: squares into 16 lanes by c mod 16, lanes by simd.h's tree, as in norm.h. */
#include "kernel_abi.h"
#include "norm.h"
#include "simd.h"

static inline v16 lanes(const float *p, int n)
{
    return n == 16 ? v_load(p) : v_load_n(p, n);
}

static inline void put_lanes(float *p, v16 v, int n)
{
    if (n == 16)
        v_store(p, v);
    else
        v_store_n(p, v, n);
}

static inline int lanes_left(int c, int width)
{
    return width - c < 16 ? width - c : 16;
}

KERNEL(l2_norm)
{
    int width = I32(3), group = I32(4);
    float *y = PTR(0, float) + (size_t)b->x * (size_t)width;
    const float *x = PTR(1, float) + (size_t)b->x * (size_t)width;

    for (int from = 0; from < width; from += group, x += group, y += group) {
        v16 acc = v_zero();
        for (int c = 0; c < group; c += 16) {
            v16 v = lanes(x + c, lanes_left(c, group));
            acc = v_fma(v, v, acc);
        }
        v16 scale = v_set1(1.0f / sqrtf(v_sum(acc) + F32(5)));
        for (int c = 0; c < group; c += 16) {
            int n = lanes_left(c, group);
            put_lanes(y + c, v_mul(lanes(x + c, n), scale), n);
        }
    }
}

static void norm_then_gate(float *y, const float *x, const float *z, const float *w, int group, float eps)
{
    v16 scale = v_set1(norm_scale(x, group, eps));
    for (int c = 0; c < group; c += 16) {
        int n = lanes_left(c, group);
        v16 v = v_mul(v_mul(lanes(x + c, n), scale), lanes(w + c, n));
        put_lanes(y + c, v_mul(v, v_silu(lanes(z + c, n))), n);
    }
}

static void gate_then_norm(float *y, const float *x, const float *z, const float *w, int group, float eps)
{
    for (int c = 0; c < group; c += 16) {
        int n = lanes_left(c, group);
        put_lanes(y + c, v_mul(lanes(x + c, n), v_silu(lanes(z + c, n))), n);
    }
    v16 scale = v_set1(norm_scale(y, group, eps));
    for (int c = 0; c < group; c += 16) {
        int n = lanes_left(c, group);
        put_lanes(y + c, v_mul(v_mul(lanes(y + c, n), scale), lanes(w + c, n)), n);
    }
}

KERNEL(gated_rms_norm)
{
    int width = I32(5), group = I32(6), weights = I32(7);
    size_t row = (size_t)b->x * (size_t)width;

    for (int from = 0; from < width; from += group) {
        float *y = PTR(0, float) + row + from;
        const float *x = PTR(1, float) + row + from, *z = PTR(2, float) + row + from;
        const float *w = PTR(3, float) + (weights == width ? from : 0);
        if (I32(9))
            gate_then_norm(y, x, z, w, group, F32(8));
        else
            norm_then_gate(y, x, z, w, group, F32(8));
    }
}

KERNEL(relu2)
{
    int width = I32(3);
    float *y = PTR(0, float) + (size_t)b->x * (size_t)width;
    const float *x = PTR(1, float) + (size_t)b->x * (size_t)width;

    for (int c = 0; c < width; c += 16) {
        int n = lanes_left(c, width);
        v16 v = v_max(lanes(x + c, n), v_zero());
        put_lanes(y + c, v_mul(v, v), n);
    }
}

KERNEL(concat)
{
    int groups = I32(6), wa = I32(4) / groups, wb = I32(5) / groups;
    const float *xa = PTR(1, float) + (size_t)b->x * (size_t)(wa * groups);
    const float *xb = PTR(2, float) + (size_t)b->x * (size_t)(wb * groups);
    float *y = PTR(0, float) + (size_t)b->x * (size_t)((wa + wb) * groups);

    for (int i = 0; i < groups; i++, y += wa + wb, xa += wa, xb += wb) {
        memcpy(y, xa, sizeof(float) * (size_t)wa);
        memcpy(y + wa, xb, sizeof(float) * (size_t)wb);
    }
}
