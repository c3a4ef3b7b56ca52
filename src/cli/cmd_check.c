/* cmd_check.c - `metrale check`: is this checkpoint whole, and would it run?
 *
 * Everything that a start does but for the device: metadata, tokenizer, circuit, target, all plans, the memory they
 * need, and every tensor through the loader's own checks, in staging memory only. So a checkpoint that passes loads,
 * and one that does not says here what a start would say. */
#include "cli/cli.h"
#include "cli/loader.h"
#include "cli/plans.h"
#include "model/binding.h"
#include "model/load.h"
#include "model/rope_table.h"
#include "text/chat.h"
#include <argp.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Args {
    const char *model;
    bool json;
    Levers levers;
} Args;

static error_t parse(int key, char *arg, struct argp_state *state)
{
    Args *a = state->input;

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &a->levers;
        return 0;
    case 'j':
        a->json = true;
        return 0;
    case ARGP_KEY_ARG:
        cli_one_model(state, &a->model, arg);
        return 0;
    case ARGP_KEY_END:
        if (!a->model)
            argp_error(state, "MODEL is needed");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* What was found. Weights are counted as placed: one that two slots share (a tied head) counts once. */
typedef struct Found {
    struct {
        uint32_t weights;
        uint64_t stored, device; /* bytes */
    } formats[DT_COUNT];
    MemoryPlan memory;
    Str chat; /* what is wrong with the chat template; empty: nothing, or there is none */
} Found;

static Status count_formats(Found *f, const LoadPlan *lp, Err *err)
{
    for (uint32_t i = 0; i < lp->n_places; i++) {
        const InstanceWeight *w = lp->places[i].weight;
        uint64_t row;
        if (w->stored >= DT_COUNT || !dtype_row_bytes(w->stored, w->k, &row))
            return err_set(err, ST_FORMAT, "tensor %s has no whole rows", lp->places[i].binding->tensor);
        f->formats[w->stored].weights++;
        f->formats[w->stored].stored += w->n * row;
        f->formats[w->stored].device += lp->places[i].bytes;
    }
    return ST_OK;
}

/* A rope table of one position: reads the factors that a checkpoint may bring, and checks them. */
static Status check_ropes(const Loaded *l, Err *err)
{
    Status st = ST_OK;
    float *one = NULL;

    for (uint32_t i = 0; i < l->in->n_ropes; i++) {
        free(one);
        one = calloc(1, memory_rope_bytes(&l->in->ropes[i], 1));
        if (one == NULL)
            TRY(err_set(err, ST_NOMEM, "out of memory for a rope table"));
        TRY(rope_table_fill(&l->in->ropes[i], l->store, 1, one, err));
    }
done:
    free(one);
    return st;
}

/* A template that does not parse leaves the model without chat; completions work. So it is said and not refused. */
static void check_template(Found *f, const Loaded *l)
{
    const char *source = chat_template_source(l->chat_template, false);
    ChatTemplate *t = NULL;
    Err why;

    if (source && chat_template_new(&t, source, strlen(source), "chat_template", &why) != ST_OK)
        str_adds(&f->chat, why.msg);
    chat_template_free(t);
}

static Status check(Found *f, Loaded *l, const Levers *levers, Err *err)
{
    Status st = ST_OK;
    ModelOptions mo;
    PlanSet set = {.n = 0};
    LoadPlan *lp = NULL;
    const LoadOptions none = {.level = LOAD_STORE};

    TRY(target_choose(&l->target, &metrale_registry, l->hw, l->in, NULL, err));
    TRY(families_load(&l->families, &metrale_registry, l->target, err));
    TRY(loader_model_options(&mo, l->in, levers, &none, err));
    TRY(plan_set_lower(&set, l->in, l->families, &mo, err));
    TRY(plan_set_memory(&f->memory, &set, &mo, err));
    TRY(load_plan_new(&lp, set.plans, set.n, err));
    TRY(count_formats(f, lp, err));
    TRY(load_run(lp, l->store, NULL, (GpuBuf){0}, err));
    TRY(check_ropes(l, err));
    check_template(f, l);
done:
    load_plan_free(lp);
    plan_set_release(&set);
    /* What a class lacks is said of the class; here it is said of this checkpoint. */
    return st == ST_OK || strstr(err->msg, l->path) ? st : err_wrap(err, st, "%s: ", l->path);
}

/* ---- output ------------------------------------------------------------------------------------------------------ */

static void print_text(const Found *f, const Loaded *l)
{
    const MemoryPlan *m = &f->memory;

    printf("%s: good\n", l->path);
    printf("circuit    %s (model_type %s), %u layers\n", l->in->arch, l->in->model_type, l->in->n_layers);
    printf("target     %s\n", l->target->name);
    if (l->tokenizer)
        printf("tokenizer  %zu tokens\n", tokenizer_vocab_size(l->tokenizer));
    else
        printf("tokenizer  none\n");
    if (f->chat.len > 0)
        printf("chat       none: %s\n", str_c(&f->chat));
    else
        printf("chat       %s\n", l->chat_template ? "template parses" : "no template");
    for (int t = 0; t < DT_COUNT; t++)
        if (f->formats[t].weights)
            printf("format     %-8s %6u weights %14" PRIu64 " bytes, %14" PRIu64 " on the device\n",
                   dtype_name((DType)t), f->formats[t].weights, f->formats[t].stored, f->formats[t].device);
    for (uint32_t i = 0; i < l->in->n_unread; i++)
        printf("not read   %u tensors: %s\n", l->in->unread[i].tensors, l->in->unread[i].because);
    printf("memory     %" PRIu64 " bytes: weights %" PRIu64 ", kv %" PRIu64 ", states %" PRIu64 ", activations %" PRIu64
           ", tables %" PRIu64 ", inputs %" PRIu64 "\n",
           m->total, m->weights, m->kv, m->states, m->activations, m->tables, m->inputs);
}

static Status print_json(const Found *f, const Loaded *l, Err *err)
{
    const MemoryPlan *m = &f->memory;
    json_t *formats = json_array(), *unread = json_array(), *j;

    for (int t = 0; t < DT_COUNT; t++)
        if (f->formats[t].weights)
            json_array_append_new(formats, json_pack("{s:s, s:I, s:I, s:I}", "format", dtype_name((DType)t), "weights",
                                                     (json_int_t)f->formats[t].weights, "stored_bytes",
                                                     (json_int_t)f->formats[t].stored, "device_bytes",
                                                     (json_int_t)f->formats[t].device));
    for (uint32_t i = 0; i < l->in->n_unread; i++)
        json_array_append_new(unread, json_pack("{s:I, s:s}", "tensors", (json_int_t)l->in->unread[i].tensors,
                                                "because", l->in->unread[i].because));
    j = json_pack("{s:s, s:s, s:s, s:I, s:s, s:o, s:s*, s:o, s:o, s:{s:I, s:I, s:I, s:I, s:I, s:I, s:I}}", "model",
                  l->path, "circuit", l->in->arch, "model_type", l->in->model_type, "layers",
                  (json_int_t)l->in->n_layers, "target", l->target->name, "tokens",
                  l->tokenizer ? json_integer((json_int_t)tokenizer_vocab_size(l->tokenizer)) : json_null(),
                  "chat_template_error", f->chat.len > 0 ? str_c(&f->chat) : NULL, "formats", formats, "not_read",
                  unread, "memory", "total", (json_int_t)m->total, "weights", (json_int_t)m->weights, "kv",
                  (json_int_t)m->kv, "states", (json_int_t)m->states, "activations", (json_int_t)m->activations,
                  "tables", (json_int_t)m->tables, "inputs", (json_int_t)m->inputs);
    if (j == NULL)
        return err_set(err, ST_NOMEM, "out of memory for the report");
    json_dumpf(j, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(j);
    return ST_OK;
}

int cmd_check(int argc, char **argv)
{
    static const struct argp_option options[] = {{"json", 'j', 0, 0, "print a JSON object", 0}, {0}};
    Status st = ST_OK;
    Err err = {{0}};
    Args a = {0};
    Loaded l = {0};
    Found f = {.chat = STR_INIT};
    const LoadOptions lo = {.level = LOAD_STORE, .text_if_any = true, .quiet = true};

    levers_init(&a.levers);
    const struct argp_child children[] = {{&a.levers.parser, 0, "Settings:", 1}, {0}};
    const struct argp parser = {options,
                                parse,
                                "MODEL",
                                "Validates a checkpoint: every key of its configuration, its tokenizer, each tensor's "
                                "shape and values, and that a hardware class can run it in so much memory. No device "
                                "is opened. Exit 2, with one sentence, when something is wrong.",
                                children,
                                NULL,
                                NULL};
    argp_parse(&parser, argc, argv, 0, NULL, &a);
    TRY(loaded_open(&l, a.model, &a.levers, &lo, &err));
    TRY(check(&f, &l, &a.levers, &err));
    if (a.json)
        TRY(print_json(&f, &l, &err));
    else
        print_text(&f, &l);
done:
    str_release(&f.chat);
    loaded_close(&l);
    levers_release(&a.levers);
    return st == ST_OK ? 0 : cli_fail(&err);
}
