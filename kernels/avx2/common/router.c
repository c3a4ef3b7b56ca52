/* The ends of a mixture of experts.
 *   top_k  ids, weights [rows][k] of a row's best experts, best first, of equal ones the lower id
 *     logits [rows][experts] f32; bias [experts] f32 or NULL, moves the choice only
 *     scores 0: softmax, 1: sigmoid. n_group > 1: only experts of the topk_group groups whose two best add up to most
 *     renormalize: weights divided by their sum + eps; then all times scale
 *     smem 8 * 16 * ceil(experts, 16): scores, then what the choice goes by
 *   blend  y[r] = sum over j of w[r][j] * x[r][j], j in turn, one fma each;  x [rows][k][width], y [rows][width]
 *   grid (rows)
 * Order: exponentials lane by lane, sums by index. Softmax without bias and groups is chosen by the logits themselves. */
#include "kernel_abi.h"
#include "simd.h"
#include <math.h>
#include <stddef.h>

static void scores_of(float *score, const float *logits, int experts, int sigmoid)
{
    float top = -INFINITY, sum = 0;
    for (int i = 0; i < experts; i++)
        top = logits[i] > top ? logits[i] : top;
    for (int i = 0; i < experts; i += 16) {
        int n = experts - i < 16 ? experts - i : 16;
        v16 x = v_load_n(logits + i, n), one = v_set1(1.0f);
        if (sigmoid)
            x = v_div(one, v_add(one, v_exp(v_sub(v_zero(), x))));
        else
            x = v_exp(v_sub(x, v_set1(top)));
        v_store_n(score + i, x, n);
    }
    if (sigmoid)
        return;
    for (int i = 0; i < experts; i++)
        sum += score[i];
    for (int i = 0; i < experts; i++)
        score[i] /= sum;
}

/* The best of a group and the best after it, added up. */
static float two_best(const float *v, int n)
{
    float a = -INFINITY, b = -INFINITY;
    for (int i = 0; i < n; i++) {
        float least = a < v[i] ? a : v[i];
        b = least > b ? least : b;
        a = v[i] > a ? v[i] : a;
    }
    return n > 1 ? a + b : a;
}

/* Takes away the experts of all groups but the best `kept`; of equal ones the later falls. */
static void keep_groups(float *choice, int experts, int groups, int kept)
{
    int size = experts / groups;
    for (int drop = groups; drop > kept; drop--) {
        int worst = -1;
        float least = INFINITY;
        for (int g = 0; g < groups; g++) {
            float sum = two_best(choice + g * size, size);
            if (sum > -INFINITY && sum <= least) {
                least = sum;
                worst = g;
            }
        }
        for (int i = 0; worst >= 0 && i < size; i++)
            choice[worst * size + i] = -INFINITY;
    }
}

static int take_largest(float *v, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (v[i] > v[best])
            best = i;
    v[best] = -INFINITY;
    return best;
}

KERNEL(top_k)
{
    int experts = I32(5), k = I32(6), sigmoid = I32(7), renormalize = I32(8), groups = I32(11), kept = I32(12);
    float scale = F32(9), sum = F32(10);
    const float *logits = PTR(2, float) + (size_t)b->x * (size_t)experts, *bias = PTR(3, float);
    int32_t *ids = PTR(0, int32_t) + (size_t)b->x * (size_t)k;
    float *weights = PTR(1, float) + (size_t)b->x * (size_t)k;
    float *score = b->smem, *choice = score + (experts + 15) / 16 * 16;

    scores_of(score, logits, experts, sigmoid);
    for (int i = 0; i < experts; i++)
        choice[i] = bias ? score[i] + bias[i] : sigmoid || groups > 1 ? score[i] : logits[i];
    keep_groups(choice, experts, groups, kept);
    for (int j = 0; j < k; j++) {
        ids[j] = take_largest(choice, experts);
        weights[j] = score[ids[j]];
        sum += weights[j];
    }
    for (int j = 0; j < k; j++)
        weights[j] = (renormalize ? weights[j] / sum : weights[j]) * scale;
}

KERNEL(blend)
{
    int width = I32(4), k = I32(5);
    float *y = PTR(0, float) + (size_t)b->x * (size_t)width;
    const float *x = PTR(1, float) + (size_t)b->x * (size_t)k * (size_t)width;
    const float *w = PTR(2, float) + (size_t)b->x * (size_t)k;

    for (int c = 0; c < width; c += 16) {
        int n = width - c < 16 ? width - c : 16;
        v16 acc = v_zero();
        for (int j = 0; j < k; j++) {
            const float *p = x + (size_t)j * (size_t)width + c;
            acc = v_fma(n == 16 ? v_load(p) : v_load_n(p, n), v_set1(w[j]), acc);
        }
        if (n == 16)
            v_store(y + c, acc);
        else
            v_store_n(y + c, acc, n);
    }
}
