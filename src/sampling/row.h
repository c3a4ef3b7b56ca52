/* row.h - op `sample` on one row, in plain C: the definition that kernels are held to.
 * Owns: nothing.   Thread: any. */
#ifndef METRALE_SAMPLING_ROW_H
#define METRALE_SAMPLING_ROW_H
#include "core/sample.h"

/* edits: the step's. own: the token of the row that the logits came from, the last of the history. logits [vocab] are left
 * as bias and penalties make them. scratch [vocab]. Tokens of edits, and own, are below vocab. */
void sampling_row(const SampleRow *r, const SampleEdit *edits, int32_t own, float *logits, uint32_t vocab,
                  uint64_t *scratch, SamplePick *out);
#endif
