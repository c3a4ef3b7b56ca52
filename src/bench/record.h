/* record.h - what a measurement was of and what it gave, as JSON, so that two of them can be set side by side.
 *
 *   record      format number, 1
 *   date, command, version, commit (of the build), target and its hash, device (class, name, units, memory, clocks), host
 *   model       what was loaded; bounds of its steps
 *   plans       digest of each plan;  kernels: one digest over the objects that the plans launch
 *   copy_gb_s   what a copy reads and writes a second
 *   start       seconds to ready, of these the load and its rate, and the rest
 *   rows        one for each workload: what it was, and its figures
 *   launches    of each timed step: the whole, the mean over all launches and over those of each family (block "all"), and one
 *               for each kind of launch. gb_s and share_of_copy count weights, states and edges
 *
 * A row or launch has a `name`, by which compare finds its counterpart. A figure is {median, least, most} over runs, or a plain
 * number where it is computed.
 *
 * Owns: what it returns is the caller's.   Thread: any. Pure: date, command and host are given. */
#ifndef METRALE_BENCH_RECORD_H
#define METRALE_BENCH_RECORD_H
#include "bench/bench.h"
#include "bench/steps.h"
#include "core/json.h"
#include "core/str.h"

typedef struct RecordFacts {
    int64_t unix_s; /* of the run's start */
    int argc;
    char **argv;
    const char *version, *commit, *host, *model, *dummy; /* dummy: format of random weights, or NULL */
    const KernelTarget *target;
    const GpuFacts *device;
    GpuClocks clocks; /* right behind the runs */
    double copy_gb_s, ready_s;
} RecordFacts;

/* Everything but rows and launches. */
Status record_new(json_t **out, const RecordFacts *f, const Model *m, Err *err);
Status record_add_row(json_t *record, const BenchWork *w, const BenchResult *r, const GpuClocks *clocks, Err *err);
Status record_add_steps(json_t *record, const StepTimes *t, const StepLoad *load, double copy_gb_s, Err *err);
/* Text that a command printed. ST_FORMAT when it is no record, with the name. */
Status record_parse(json_t **out, const char *text, size_t len, const char *name, Err *err);

/* JSON with one member a line, of rows and launches one each; what line-oriented tools need. */
void record_print(const json_t *record, Str *out);
/* For people. */
void record_show(const json_t *record, Str *out);
/* What differs between the two, and each figure of both with its ratio, b over a. */
void record_compare(const json_t *a, const json_t *b, Str *out);
#endif
