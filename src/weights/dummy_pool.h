/* dummy_pool.h - random numbers in stored form, made once and read many times.
 *
 * Random weights are wanted at the speed of memory: an 80B model is 45 GB. So each kind of tensor (a format and what is in
 * it) has one pool of about a million blocks, and a tensor is a patchwork of it: every 4096 elements begin at a place of
 * their own, chosen by a hash of the tensor's key and the segment's number. Reading is memcpy from the cache.
 * What that costs: pieces of tensors repeat. Two segments share elements with a chance of 1 in 128, so that sums over rows
 * behave as if all values were drawn.
 *
 * Internal to this room.   Thread: dummy_pool_find one caller; dummy_pool_read any number. */
#ifndef METRALE_WEIGHTS_DUMMY_POOL_H
#define METRALE_WEIGHTS_DUMMY_POOL_H
#include "weights/store.h"

#define DUMMY_BOUND 3.4642f /* of |z|: 2 over the deviation 1/sqrt(3), rounded up */

typedef struct DummyPool DummyPool;

/* Can a tensor of this format be filled so? */
bool dummy_pool_takes(DType t, const DummyFill *fill);
/* The pool in *list, which it is put into when it is new. t and fill are taken. */
Status dummy_pool_find(DummyPool **list, const DummyPool **out, DType t, const DummyFill *fill, uint64_t seed,
                       Err *err);
void dummy_pool_free(DummyPool *list);
/* Bytes [offset, offset + len) of the tensor with this key. */
void dummy_pool_read(const DummyPool *p, uint64_t key, uint64_t offset, uint8_t *dst, size_t len);
/* 64 bits from 64, one to one. */
uint64_t dummy_mix(uint64_t x);
#endif
