/* read.h - the directories of a kernel tree as classes, models and layers, before anything is resolved. Internal to the room. */
#ifndef METRALE_CLOSURE_READ_H
#define METRALE_CLOSURE_READ_H
#include "closure/layout.h"

/* Fills tree->classes and tree->files; what is wrong becomes a fault. Fails when tree->dir cannot be listed. */
Status tree_walk(Tree *t, Err *err);
/* Adds the files that each layer's [sources] use names. After tree_walk. */
void tree_use(Tree *t);
#endif
