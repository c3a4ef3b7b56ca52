/* scheduler.h - which sequences run, with how many rows each, on which KV blocks.
 *
 * First come, first served: both lists are in order of arrival, and all in `running` came before all in `waiting`.
 * Owns: the KV pools, the lists and the sequences in them.   Not: the model, streams' readers.   Thread: engine only. */
#ifndef METRALE_ENGINE_SCHEDULER_H
#define METRALE_ENGINE_SCHEDULER_H
#include "engine/sequence.h"

typedef struct Scheduler {
    KvPools kv;
    SequenceList waiting, running;
    int32_t *free_slots; /* state slots of no running sequence, a stack; there is one for each place in running */
    uint32_t n_free_slots;
    uint32_t max_rows;
    uint64_t preemptions;
} Scheduler;

Status scheduler_init(Scheduler *s, const StepRunner *bounds, uint32_t queue_len, Err *err);
void scheduler_release(Scheduler *s); /* the lists must be empty */

/* Sets `rows` of each running sequence for the next step. Admits and preempts. */
void scheduler_pick(Scheduler *s);
/* Takes sequence `at` out of its list; its blocks and its state slot are free at once. */
Sequence *scheduler_remove(Scheduler *s, SequenceList *list, uint32_t at);
#endif
