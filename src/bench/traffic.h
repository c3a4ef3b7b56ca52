/* traffic.h - what a launch has to move and to compute, out of the plan: the figures beside which measured times are read.
 *
 *   weights  bytes of weights, each once; of experts as many as uniform routing is expected to choose
 *   states   KV that the rows see, once for each sequence; recurrent states, read and written
 *   edges    activations in and out
 *   flops    2 for each multiplication with its addition, of products with matrices and of attention; 0 for other ops
 *
 * Owns: nothing; arithmetic only.   Thread: any. */
#ifndef METRALE_BENCH_TRAFFIC_H
#define METRALE_BENCH_TRAFFIC_H
#include "circuit/plan.h"

/* A step of `seqs` sequences with equally many rows each, behind `first` tokens each; the last `outs` rows are wanted. */
typedef struct StepLoad {
    uint32_t rows, seqs, outs, first;
} StepLoad;

typedef struct Traffic {
    double weights, states, edges, flops;
} Traffic;

Traffic traffic_of_launch(const Plan *p, const PlanBlock *b, const PlanStep *s, const StepLoad *load);
/* The sum over all launches of a step; the stem reads rows of its table only. */
Traffic traffic_of_step(const Plan *p, const StepLoad *load);
/* Bytes that no schedule can do without: weights and states. */
static inline double traffic_least(Traffic t)
{
    return t.weights + t.states;
}
#endif
