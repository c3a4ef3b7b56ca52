/* expert_linear.h - linear for the experts that a router chose: y[r][j] = x . w[ids[r][j]] + bias[ids[r][j]], j = 0 .. chosen - 1.
 *   y    [rows][chosen][n] f32
 *   x    [rows][k], one for all experts of a row, or [rows][chosen][k], one for each; in the format that dot_tile reads
 *   ids  [rows][chosen] i32, each in 0 .. experts - 1
 *   w    [experts] matrices n16, each padded to whole tiles for itself;  bias [experts][n] f32 or NULL
 * The including file has included tile.h by way of the header of its format, whose dot_tile has the order of additions: it is
 * linear's, so neither the other rows nor the walk change a bit.
 *
 * Two walks. By pair: a block of the grid (tiles, rows * chosen) is one row and one of its experts, so that a step of few rows reads
 * the chosen experts and nothing else. By expert: a block of the grid (tiles, experts) looks for its expert's pairs and takes them
 * ROWS at a time, so that a tile's weights are read from memory once. */
#ifndef METRALE_EXPERT_LINEAR_H
#define METRALE_EXPERT_LINEAR_H
#include <stdbool.h>

typedef struct ExpertArgs {
    float *y;
    const uint8_t *x, *w;
    const int32_t *ids;
    const float *bias;
    int pairs, chosen, n, k;
    bool own; /* each expert of a row has its own x */
} ExpertArgs;

/* R pairs of one expert with one tile */
INLINE void expert_group(const int R, const ExpertArgs *t, int expert, int tile, const int *pair)
{
    const uint8_t *x[GROUP];
    const size_t tiles = (size_t)(t->n + 15) / 16;
    const uint8_t *w = t->w + ((size_t)expert * tiles + (size_t)tile) * tile_bytes(t->k);
    v16 acc[GROUP];
    int n0 = tile * 16, n = t->n - n0 < 16 ? t->n - n0 : 16;

    for (int r = 0; r < R; r++)
        x[r] = t->x + (size_t)(t->own ? pair[r] : pair[r] / t->chosen) * x_bytes(t->k);
    dot_tile(R, acc, w, x, t->k);
    for (int r = 0; r < R; r++) {
        if (t->bias)
            acc[r] = v_add(acc[r], tile_read(t->bias + (size_t)expert * (size_t)t->n + n0, n));
        tile_write(t->y + (size_t)pair[r] * (size_t)t->n + n0, acc[r], n);
    }
}

/* y x ids w bias rows chosen xwidth n k */
INLINE ExpertArgs expert_args(const KArg *a)
{
    return (ExpertArgs){.y = PTR(0, float),
                        .x = PTR(1, uint8_t),
                        .ids = PTR(2, int32_t),
                        .w = PTR(3, uint8_t),
                        .bias = PTR(4, float),
                        .pairs = I32(5) * I32(6),
                        .chosen = I32(6),
                        .n = I32(8),
                        .k = I32(9),
                        .own = I32(7) != I32(9)};
}

INLINE void expert_by_pair(const KArg *a, const KBlock *b)
{
    ExpertArgs t = expert_args(a);
    int pair = (int)b->y;
    expert_group(1, &t, t.ids[pair], (int)b->x, &pair);
}

INLINE void expert_by_expert(const KArg *a, const KBlock *b)
{
    ExpertArgs t = expert_args(a);
    int expert = (int)b->y, tile = (int)b->x, found = 0, pair[GROUP];

    for (int p = 0; p < t.pairs; p++) {
        if (t.ids[p] != expert)
            continue;
        pair[found++] = p;
        if (found == GROUP) {
            expert_group(GROUP, &t, expert, tile, pair);
            found = 0;
        }
    }
    int i = 0;
    if (GROUP > 4 && i + 4 <= found) {
        expert_group(4, &t, expert, tile, pair + i);
        i += 4;
    }
    if (GROUP > 2 && i + 2 <= found) {
        expert_group(2, &t, expert, tile, pair + i);
        i += 2;
    }
    for (; i < found; i++)
        expert_group(1, &t, expert, tile, pair + i);
}
#endif
