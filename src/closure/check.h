/* check.h - the structure checks over a resolved tree. Internal to the room. */
#ifndef METRALE_CLOSURE_CHECK_H
#define METRALE_CLOSURE_CHECK_H
#include "closure/layout.h"

/* Adds a fault for every broken rule on shadows, duplicates, modules, families and rules. */
void tree_check(Tree *t);
#endif
