/* expr.h - the small integer expressions of the TOML files: + - * / (exact floor) parentheses, ceil(a,b) = ceil of a/b,
 * min, max, comparisons == != < <= > >= (0 or 1), names (letters, digits, _ and inner dots) and decimal integers. Used
 * for shapes, geometry, sizes and conditions. */
#ifndef METRALE_CORE_EXPR_H
#define METRALE_CORE_EXPR_H
#include "core/arena.h"
#include "core/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct Expr Expr;
/* Looks a name up; false when unknown. */
typedef bool (*ExprLookup)(void *ctx, const char *name, int64_t *out);

/* Compiles text; depth and length are bounded. The message names the column. Memory from a. */
Status expr_parse(const char *text, Arena *a, Expr **out, Err *err);
/* Overflow, division by zero and an unknown name are errors that quote the text. */
Status expr_eval(const Expr *e, ExprLookup lookup, void *ctx, int64_t *out, Err *err);
/* Calls seen once for each name in the expression. */
void expr_names(const Expr *e, void (*seen)(void *ctx, const char *name), void *ctx);
const char *expr_text(const Expr *e);
#endif
