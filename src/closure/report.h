/* report.h - what a resolved tree says, as text or as JSON.
 *
 * Each function appends to out and leaves the stream to the caller; json true: one JSON value and a newline.
 * A failed growth of out is ST_NOMEM.   Thread: any. */
#ifndef METRALE_CLOSURE_REPORT_H
#define METRALE_CLOSURE_REPORT_H
#include "closure/layout.h"
#include "core/str.h"

/* One line for each target: name, arch, number of points, content hash. */
Status report_list(const Tree *t, bool json, Str *out, Err *err);
/* Layers, the layer that each file came from, shadows with reasons, points, flags, hash. */
Status report_target(const Tree *t, const TreeTarget *g, bool json, Str *out, Err *err);
/* One line for each fault: `file:line: what: remedy`. Nothing when there is none (JSON: an empty array). */
Status report_faults(const Tree *t, bool json, Str *out, Err *err);
/* Which file answers to a name ("rms_norm", "rms_norm.cu", "detail/mma.cuh"), what it hides, and why.
 * ST_NOTFOUND when no layer of the target holds such a file. */
Status report_why(const Tree *t, const TreeTarget *g, const char *name, bool json, Str *out, Err *err);

/* "TREE/file:line: what: remedy" */
void report_fault_line(const Tree *t, const Fault *f, Str *out);
#endif
