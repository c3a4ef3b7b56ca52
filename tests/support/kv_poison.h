/* kv_poison.h - a model whose KV memory a test may fill with NaN, block by block. Bytes 0xff are NaN in f32
 * and in bf16. One model at a time: the address of its KV memory is caught as it is allocated. */
#ifndef METRALE_TESTS_KV_POISON_H
#define METRALE_TESTS_KV_POISON_H
#include "support/open_model.h"

static GpuOps kv_poison_ops; /* the backend's, with mem_alloc below */
static const GpuOps *kv_poison_real;
static GpuBuf kv_poison_memory;

static Status kv_poison_alloc(GpuBackend *b, size_t bytes, const char *what, GpuBuf *out, Err *err)
{
    Status st = kv_poison_real->mem_alloc(b, bytes, what, out, err);
    if (st == ST_OK && strcmp(what, "KV cache and states") == 0)
        kv_poison_memory = *out;
    return st;
}

static inline OpenModel open_poisoned(const char *path, const char *hw, DType kv, uint32_t window,
                                      const ModelOptions *opt)
{
    GpuBackend *gpu;
    Err e;

    if (open_backend(&gpu, hw, &e) != ST_OK)
        fail_msg("%s", e.msg);
    kv_poison_real = gpu->ops;
    kv_poison_ops = *gpu->ops;
    kv_poison_ops.mem_alloc = kv_poison_alloc;
    gpu->ops = &kv_poison_ops;
    return open_model_window(path, hw, kv, window, opt, gpu);
}

/* block -1: all of the group. Paged states and recurrent ones are laid out layer by layer, part by part. */
static inline void kv_poison_block(const OpenModel *m, uint32_t group, int32_t block)
{
    const MemoryPlan *mem = model_memory(m->model);
    uint64_t at = 0, bytes;
    Err e;

    for (uint32_t l = 0; l < m->in->n_layers; l++) {
        const InstanceBlock *b = &m->in->blocks[m->in->layers[l].block];
        for (uint32_t s = 0; s < b->n_states; s++)
            for (uint32_t p = 0; p < b->states[s].n_parts; p++, at += bytes) {
                const InstanceState *state = &b->states[s];
                const bool paged = state->kind == STATE_PAGED;
                const uint32_t g = paged ? instance_kv_group(m->in, state) : 0;
                uint8_t *pool = (uint8_t *)kv_poison_memory.ptr + at;
                uint64_t one = (uint64_t)state->parts[p].heads * state->parts[p].width * KV_BLOCK_TOKENS *
                               (state->format == DT_F32 ? 4 : 2);
                uint32_t count = paged ? mem->groups[g].blocks : model_options(m->model)->max_seqs;

                assert_int_equal(
                    memory_state_bytes(state, p, count + memory_padding(model_plan(m->model, 0)), &bytes, &e), ST_OK);
                if (paged && g == group &&
                    gpu_mem_set(m->gpu, block < 0 ? pool : pool + (uint64_t)block * one, 0xff,
                                block < 0 ? one * count : one, &e) != ST_OK)
                    fail_msg("%s", e.msg);
            }
    }
    assert_int_equal(at, kv_poison_memory.bytes);
}

static inline void kv_poison_all(const OpenModel *m)
{
    for (uint32_t g = 0; g < m->in->n_kv_groups; g++)
        kv_poison_block(m, g, -1);
}
#endif
