/* report_lkb.c - the blueprint: every family of every class by op and format, how many points it has, which of them
 * cite a measurement, and what each class keeps to itself (families of its own, files that shadow others). */
#include "circuit/report_parts.h"
#include <stdio.h>
#include <string.h>

static Status no_memory(Err *err)
{
    return err_set(err, ST_NOMEM, "out of memory for the report");
}

static uint32_t measured(const Family *f)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < f->n_points; i++)
        n += f->points[i].evidence != NULL && f->points[i].evidence[0] != '\0';
    return n;
}

/* Is the family defined in the class's own directory? */
static bool own(const ReportClass *hw, const Family *f)
{
    char dir[256];

    return snprintf(dir, sizeof dir, "kernels/%s/", hw->name) < (int)sizeof dir && str_starts(f->file, dir);
}

static json_t *class_json(const ReportClass *hw, const ReportLines *lines, size_t n_lines)
{
    uint32_t n_own = 0, points = 0, n_measured = 0;
    json_t *count = json_null();

    for (uint32_t i = 0; i < hw->n_families; i++) {
        n_own += own(hw, hw->families[i]);
        points += hw->families[i]->n_points;
        n_measured += measured(hw->families[i]);
    }
    for (size_t i = 0; i < n_lines; i++)
        if (strcmp(lines[i].hw, hw->name) == 0)
            count = json_integer((json_int_t)lines[i].lines);
    return json_pack("{s:s, s:s, s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:f, s:I, s:o}", "class", hw->name, "vendor",
                     hw->vendor, "arch", hw->arch, "inherits", hw->inherits, "built", hw->built, "families",
                     (json_int_t)hw->n_families, "own_families", (json_int_t)n_own, "points", (json_int_t)points,
                     "measured_points", (json_int_t)n_measured, "measured_share",
                     points ? (double)n_measured / points : 0.0, "residual_files", (json_int_t)hw->residual,
                     "residual_lines", count);
}

/* The entry of a definition, which several classes may read; NULL: out of memory. */
static json_t *family_entry(json_t *families, const Family *f, const Rule *r)
{
    Str ops = STR_INIT, formats = STR_INIT;
    size_t i;
    json_t *item;

    json_array_foreach(families, i, item)
    {
        if (report_int(item, "line") == f->line && strcmp(report_text(item, "file"), f->file) == 0)
            return item;
    }
    report_say_ops(r, &ops);
    report_say_family_formats(f, &formats);
    item = json_pack("{s:o, s:o, s:s, s:s, s:s, s:I, s:I, s:I, s:s, s:[]}", "ops", report_json_text(&ops), "formats",
                     report_json_text(&formats), "family", f->id, "layout", f->layout, "numerics", f->numerics,
                     "points", (json_int_t)f->n_points, "measured_points", (json_int_t)measured(f), "line",
                     (json_int_t)f->line, "file", f->file, "classes");
    return json_array_append_new(families, item) == 0 ? item : NULL;
}

/* Lists the families by what they cover: those of one op in the order of the signature, then the fused ones. */
static Status add_families(json_t *families, const ReportClass *hw, Err *err)
{
    for (int op = 0; op <= OP_COUNT; op++)
        for (uint32_t i = 0; i < hw->n_families; i++) {
            const Family *f = hw->families[i];
            json_t *item;
            if ((f->op ? (int)f->op->kind : OP_COUNT) != op)
                continue;
            item = family_entry(families, f, hw->rules[i]);
            if (item == NULL || !report_add_once(json_object_get(item, "classes"), hw->name))
                return no_memory(err);
        }
    return ST_OK;
}

Status report_lkb(json_t **out, const Classes *c, const ReportClass *hw, const ReportLines *lines, size_t n_lines,
                  Err *err)
{
    json_t *classes = json_array(), *families = json_array();
    Status st = ST_OK;

    for (size_t i = 0; i < c->n_classes; i++) {
        if (hw && hw != &c->classes[i])
            continue;
        if (json_array_append_new(classes, class_json(&c->classes[i], lines, n_lines)) != 0)
            TRY(no_memory(err));
        TRY(add_families(families, &c->classes[i], err));
    }
    *out = json_pack("{s:O, s:O}", "classes", classes, "families", families);
    if (*out == NULL)
        TRY(no_memory(err));
done:
    json_decref(classes);
    json_decref(families);
    return st;
}

void report_lkb_text(const json_t *r, Str *out)
{
    const json_t *item;
    size_t i;

    str_addf(out, "%-10s %-8s %-12s %-10s %8s %6s %6s %9s %9s %9s\n", "class", "vendor", "arch", "inherits", "families",
             "own", "points", "measured", "residual", "lines");
    json_array_foreach(json_object_get(r, "classes"), i, item)
    {
        const json_t *lines = json_object_get(item, "residual_lines");
        char text[32] = "?";
        if (json_is_integer(lines))
            snprintf(text, sizeof text, "%lld", (long long)json_integer_value(lines));
        str_addf(out, "%-10s %-8s %-12s %-10s %8lld %6lld %6lld %8.0f%% %9lld %9s%s\n", report_text(item, "class"),
                 report_text(item, "vendor"), report_text(item, "arch"),
                 *report_text(item, "inherits") ? report_text(item, "inherits") : "-", report_int(item, "families"),
                 report_int(item, "own_families"), report_int(item, "points"),
                 100 * json_number_value(json_object_get(item, "measured_share")), report_int(item, "residual_files"),
                 text, json_is_true(json_object_get(item, "built")) ? "" : "  not in this binary");
    }
    str_addf(out, "\n%-44s %-52s %-28s %6s %8s  %s\n", "ops", "formats", "family", "points", "measured", "classes");
    json_array_foreach(json_object_get(r, "families"), i, item)
    {
        str_addf(out, "%-44s %-52s %-28s %6lld %8lld  ", report_text(item, "ops"), report_text(item, "formats"),
                 report_text(item, "family"), report_int(item, "points"), report_int(item, "measured_points"));
        report_join(json_object_get(item, "classes"), " ", out);
        str_addc(out, '\n');
    }
}
