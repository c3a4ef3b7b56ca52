/* report_venn.c - the families of several classes as a Venn diagram in words: which all share, which only some have.
 *
 * A family is its id. Classes that share one read the same definition, or have their own under one id: the two are told
 * apart, since only the first is one thing to maintain. */
#include "circuit/report_parts.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_CLASSES = 16 };

/* A family of some class. */
typedef struct Item {
    const Family *family; /* of the first class that has it */
    const Rule *rule;
    uint32_t classes; /* bit i: class i has the id */
    bool own;         /* not all of them by one definition */
} Item;

typedef struct Venn {
    Item *items;
    size_t n, cap;
    uint32_t cls; /* the class that is being added */
    bool no_memory;
} Venn;

static Status no_memory(Err *err)
{
    return err_set(err, ST_NOMEM, "out of memory for the report");
}

static void add(Venn *v, const Family *f, const Rule *r)
{
    for (size_t i = 0; i < v->n; i++) {
        Item *x = &v->items[i];
        if (strcmp(x->family->id, f->id) != 0)
            continue;
        x->own |= x->family->line != f->line || strcmp(x->family->file, f->file) != 0;
        x->classes |= UINT32_C(1) << v->cls;
        return;
    }
    if (v->n == v->cap) {
        const size_t cap = v->cap ? 2 * v->cap : 64;
        Item *p = realloc(v->items, cap * sizeof *p);
        if (p == NULL) {
            v->no_memory = true;
            return;
        }
        v->items = p;
        v->cap = cap;
    }
    v->items[v->n++] = (Item){.family = f, .rule = r, .classes = UINT32_C(1) << v->cls};
}

static Status visit(void *ctx, const Lowering *l, const LowerBlock *b, Match **matches, uint32_t n_matches, Err *err)
{
    Venn *v = ctx;

    (void)l;
    (void)b;
    for (uint32_t i = 0; i < n_matches; i++)
        add(v, matches[i]->rule->family, matches[i]->rule);
    return v->no_memory ? no_memory(err) : ST_OK;
}

static json_t *item_json(const Item *x)
{
    Str ops = STR_INIT, formats = STR_INIT;

    report_say_ops(x->rule, &ops);
    report_say_family_formats(x->family, &formats);
    return json_pack("{s:s, s:o, s:o, s:s}", "family", x->family->id, "ops", report_json_text(&ops), "formats",
                     report_json_text(&formats), "file", x->family->file);
}

/* The group of one set of classes; own: those that each of them defines. NULL when it is empty. */
static json_t *group_json(const Venn *v, const ReportClass *const *hw, size_t n, uint32_t set, bool own, bool *ok)
{
    json_t *classes = json_array(), *families = json_array();

    for (size_t i = 0; i < n; i++)
        if (set >> i & 1)
            *ok &= json_array_append_new(classes, json_string(hw[i]->name)) == 0;
    for (size_t i = 0; i < v->n; i++)
        if (v->items[i].classes == set && v->items[i].own == own)
            *ok &= json_array_append_new(families, item_json(&v->items[i])) == 0;
    if (json_array_size(families) == 0) {
        json_decref(classes);
        json_decref(families);
        return NULL;
    }
    return json_pack("{s:o, s:b, s:o}", "classes", classes, "one_definition", !own, "families", families);
}

/* Groups: the largest sets first, then in the order of the classes. */
static bool add_groups(const Venn *v, const ReportClass *const *hw, size_t n, json_t *groups)
{
    bool ok = true;

    for (int size = (int)n; size > 0; size--)
        for (uint32_t set = 1; set < UINT32_C(1) << n; set++)
            for (int own = 0; own < 2 && __builtin_popcount(set) == size; own++) {
                json_t *g = group_json(v, hw, n, set, own, &ok);
                ok &= g == NULL || json_array_append_new(groups, g) == 0;
            }
    return ok;
}

Status report_venn(json_t **out, const Classes *c, const ReportClass *const *hw, size_t n, const ReportNeed *need,
                   Err *err)
{
    Venn v = {0};
    FamilySet *sets[MAX_CLASSES] = {0};
    json_t *classes = json_array(), *groups = json_array();
    Str why = STR_INIT;
    Status st = ST_OK;

    if (n > MAX_CLASSES)
        TRY(err_set(err, ST_UNSUPPORTED, "%zu classes are too many for one diagram; at most %d", n, MAX_CLASSES));
    for (size_t i = 0; i < n; i++) {
        const KernelTarget *target = NULL;
        uint32_t have = 0;
        v.cls = (uint32_t)i;
        if (need) {
            TRY(report_families(&sets[i], &target, &why, c, hw[i], need->in, err));
            TRY(report_each_block(sets[i], need, visit, &v, err));
        } else {
            for (uint32_t f = 0; f < hw[i]->n_families; f++)
                add(&v, hw[i]->families[f], hw[i]->rules[f]);
        }
        for (size_t k = 0; k < v.n; k++)
            have += v.items[k].classes >> i & 1;
        if (v.no_memory ||
            json_array_append_new(classes, json_pack("{s:s, s:s?, s:I}", "class", hw[i]->name, "target",
                                                     target ? target->name : NULL, "families", (json_int_t)have)) != 0)
            TRY(no_memory(err));
    }
    if (!add_groups(&v, hw, n, groups))
        TRY(no_memory(err));
    *out = json_pack("{s:s?, s:O, s:O}", "model", need ? need->in->source : NULL, "classes", classes, "groups", groups);
    if (*out == NULL)
        TRY(no_memory(err));
done:
    for (size_t i = 0; i < MAX_CLASSES; i++)
        families_free(sets[i]);
    json_decref(classes);
    json_decref(groups);
    str_release(&why);
    free(v.items);
    return st;
}

void report_venn_text(const json_t *r, Str *out)
{
    const json_t *item, *family;
    size_t i, k;

    if (*report_text(r, "model"))
        str_addf(out, "families that can cover something of %s\n", report_text(r, "model"));
    json_array_foreach(json_object_get(r, "classes"), i, item)
    {
        str_addf(out, "%-10s %4lld families", report_text(item, "class"), report_int(item, "families"));
        if (*report_text(r, "model"))
            str_addf(out, "  %s", *report_text(item, "target") ? report_text(item, "target") : "no target serves it");
        str_addc(out, '\n');
    }
    json_array_foreach(json_object_get(r, "groups"), i, item)
    {
        const json_t *classes = json_object_get(item, "classes"), *families = json_object_get(item, "families");
        str_adds(out, json_array_size(classes) == 1 ? "\nonly " : "\n");
        report_join(classes, ", ", out);
        str_addf(out, ": %zu%s\n", json_array_size(families),
                 json_is_true(json_object_get(item, "one_definition")) ? "" : ", each by its own definition");
        json_array_foreach(families, k, family) str_addf(out, "  %-28s %-44s %s\n", report_text(family, "family"),
                                                         report_text(family, "ops"), report_text(family, "formats"));
    }
}
