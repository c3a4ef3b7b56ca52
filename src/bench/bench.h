/* bench.h - a workload on an engine in this process, timed step by step, beside the machine's measured copy bandwidth.
 * C equal requests are submitted at once: N random prompt tokens, greedy, end tokens ignored, G tokens each.
 *   prefill_tok_s  prompt tokens over the time of the steps that took prompt tokens
 *   decode_tok_s   generated tokens over the time of the steps that took none
 *   ttft_ms        submission to first token, median over requests
 *   step_p50_ms..  decode steps alone
 *   bytes_step     bytes that a decode step must move (traffic.h: weights, and states at their mean length)
 *   bytes_token    the same over the tokens of a step
 *   share          bytes that decode moves a second over the bytes that a copy reads and writes a second
 * Each is taken from `repeat` runs, behind one short run that is not counted: median, least and most.
 * Owns: nothing.   Thread: the engine's owner; the engine must not be started. */
#ifndef METRALE_BENCH_BENCH_H
#define METRALE_BENCH_BENCH_H
#include "engine/engine.h"

typedef struct BenchWork {
    uint32_t prompt, gen, concurrency, repeat;
    uint64_t seed;
} BenchWork;

typedef struct BenchFigure {
    double median, least, most; /* over the runs */
} BenchFigure;

typedef struct BenchResult {
    BenchFigure prefill_tok_s, decode_tok_s, ttft_ms, step_p50_ms, step_p99_ms;
    double bytes_step, bytes_token, share, copy_gb_s;
    uint64_t tokens_hash; /* of all generated ids: the same work gives the same answer */
} BenchResult;

Status bench_run(BenchResult *out, Engine *e, Clock *clock, const BenchWork *work, double copy_gb_s, Err *err);
/* Bytes read plus bytes written a second, in 1e9, of `threads` threads copying `bytes` in all; best of five. */
Status bench_copy(double *gb_s, Clock *clock, unsigned threads, size_t bytes, Err *err);
/* The same of a device whose memory is its own, by its own clock. */
Status bench_copy_device(double *gb_s, GpuBackend *gpu, size_t bytes, Err *err);
#endif
