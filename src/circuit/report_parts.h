/* report_parts.h - what the reports share. Private to the room. */
#ifndef METRALE_CIRCUIT_REPORT_PARTS_H
#define METRALE_CIRCUIT_REPORT_PARTS_H
#include "circuit/lowering.h"
#include "circuit/report.h"

/* The families of the target of c that serves the model on hw, or of the class's common layers when none does; then
 * *target is NULL, and *why says so. */
Status report_families(FamilySet **out, const KernelTarget **target, Str *why, const Classes *c, const ReportClass *hw,
                       const Instance *in, Err *err);

/* Called for every block of the model in every shape, with its matches. */
typedef Status (*ReportVisit)(void *ctx, const Lowering *l, const LowerBlock *b, Match **matches, uint32_t n_matches,
                              Err *err);
Status report_each_block(const FamilySet *fs, const ReportNeed *need, ReportVisit visit, void *ctx, Err *err);

/* "weight q4_1, in i8/32"; nothing when the family lists none. */
void report_say_family_formats(const Family *f, Str *out);
/* The ops that a rule covers: "rms_norm + act_quant". */
void report_say_ops(const Rule *r, Str *out);

/* A member as text or number; "" and 0 when it is not there. */
const char *report_text(const json_t *o, const char *key);
long long report_int(const json_t *o, const char *key);
/* Text of a Str as a JSON string, NULL when memory ran out; releases s. */
json_t *report_json_text(Str *s);
/* Appends text to a list unless it is there; false: out of memory. */
bool report_add_once(json_t *list, const char *text);
/* The strings of a list, with sep between them. */
void report_join(const json_t *list, const char *sep, Str *out);
#endif
