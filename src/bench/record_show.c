/* record_show.c - records for people: one alone, and two side by side. See record.h. */
#include "bench/record.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ------------------------------------------------------------------------------------------------------ */

static const char *str_at(const json_t *j, const char *path)
{
    const char *s = json_string_value(json_at(j, path));
    return s ? s : "-";
}

static double num_at(const json_t *j, const char *path)
{
    return json_number_value(json_at(j, path));
}

/* A figure's median, or a plain number. */
static bool figure_value(const json_t *j, double *value)
{
    const json_t *m = json_is_object(j) ? json_object_get(j, "median") : j;

    if (!json_is_number(m) || (m == j && !json_is_real(j))) /* whole numbers say what was done, not how it went */
        return false;
    *value = json_number_value(m);
    return true;
}

/* ---- one ---------------------------------------------------------------------------------------------------------- */

static void show_rows(const json_t *rows, Str *out)
{
    const json_t *r;
    size_t i;

    if (json_array_size(rows) > 0)
        str_addf(out, "%-16s %13s %12s %12s %19s %9s %9s %10s %8s  %s\n", "prompt+gen x C", "prefill tok/s", "first ms",
                 "decode tok/s", "(least..most)", "p50 ms", "p99 ms", "MB a step", "of copy", "tokens");
    json_array_foreach(rows, i, r)
    {
        char spread[40];
        snprintf(spread, sizeof spread, "(%.1f..%.1f)", num_at(r, "decode_tok_s.least"),
                 num_at(r, "decode_tok_s.most"));
        str_addf(out, "%-16s %13.1f %12.2f %12.1f %19s %9.3f %9.3f %10.1f %7.1f%%  %s\n", str_at(r, "name"),
                 num_at(r, "prefill_tok_s.median"), num_at(r, "ttft_ms.median"), num_at(r, "decode_tok_s.median"),
                 spread, num_at(r, "step_p50_ms.median"), num_at(r, "step_p99_ms.median"),
                 num_at(r, "bytes_step") * 1e-6, 100 * num_at(r, "share_of_copy"), str_at(r, "tokens_hash"));
    }
}

static void show_launches(const json_t *launches, Str *out)
{
    const char *at = "";
    const json_t *l;
    size_t i;

    json_array_foreach(launches, i, l)
    {
        if (strcmp(at, str_at(l, "at")) != 0)
            str_addf(out, "\n%s\n%-10s %-44s %-34s %6s %10s %7s %10s %9s %8s %8s\n", str_at(l, "at"), "  block",
                     "nodes", "kernel", "times", "us", "of step", "MB", "GB/s", "of copy", "TFLOP/s");
        at = str_at(l, "at");
        str_addf(out, "  %-8s %-44s %-34s %6.0f %10.2f %6.1f%% %10.3f %9.1f %7.1f%% %8.3g\n", str_at(l, "block"),
                 str_at(l, "nodes"), str_at(l, "entry"), num_at(l, "launches"), num_at(l, "us.median"),
                 100 * num_at(l, "share_of_step"), num_at(l, "mb"), num_at(l, "gb_s"), 100 * num_at(l, "share_of_copy"),
                 num_at(l, "tflops"));
    }
}

static void show_clocks(const json_t *r, Str *out)
{
    const double cores = num_at(r, "device.clocks.cores_mhz"), most = num_at(r, "device.clocks.cores_max_mhz");

    if (cores > 0)
        str_addf(out, ", cores at %.0f MHz, memory at %.0f", cores, num_at(r, "device.clocks.memory_mhz"));
    if (most > 0)
        str_addf(out, "%s cores at most %.0f MHz, memory %.0f", cores > 0 ? ";" : ",", most,
                 num_at(r, "device.clocks.memory_max_mhz"));
}

void record_show(const json_t *r, Str *out)
{
    str_addf(out, "%s, commit %.12s, kernels %.12s, plan %.12s\n", str_at(r, "target"), str_at(r, "commit"),
             str_at(r, "kernels"), str_at(json_array_get(json_object_get(r, "plans"), 0), "digest"));
    str_addf(out, "device  %s, %.0f units", str_at(r, "device.name"), num_at(r, "device.units"));
    show_clocks(r, out);
    str_addf(out, "; host %s\n", str_at(r, "host"));
    str_addf(out, "start   %.2f s to ready: %.2f s for %.2f GB of weights (%.2f GB/s), %.2f s for the rest\n",
             num_at(r, "start.ready_s"), num_at(r, "start.load_s"), num_at(r, "start.load_bytes") * 1e-9,
             num_at(r, "start.load_gb_s"), num_at(r, "start.rest_s"));
    str_addf(out, "copy    %.1f GB/s read and written\n", num_at(r, "copy_gb_s"));
    show_rows(json_object_get(r, "rows"), out);
    show_launches(json_object_get(r, "launches"), out);
}

/* ---- two ---------------------------------------------------------------------------------------------------------- */

static void differs(const json_t *a, const json_t *b, const char *path, Str *out)
{
    const json_t *x = json_at(a, path), *y = json_at(b, path);
    char *s, *t;

    if (json_equal(x, y))
        return;
    s = x ? json_dumps(x, JSON_ENCODE_ANY) : NULL;
    t = y ? json_dumps(y, JSON_ENCODE_ANY) : NULL;
    str_addf(out, "differs  %-12s %s\n%-21s %s\n", path, s ? s : "-", "", t ? t : "-");
    free(s);
    free(t);
}

static const json_t *named(const json_t *list, const char *name)
{
    const json_t *j;
    size_t i;

    json_array_foreach(list, i, j) if (strcmp(str_at(j, "name"), name) == 0) return j;
    return NULL;
}

static void compare_plans(const json_t *a, const json_t *b, Str *out)
{
    const json_t *p, *q, *plans = json_object_get(b, "plans");
    size_t i;

    json_array_foreach(json_object_get(a, "plans"), i, p)
    {
        q = named(plans, str_at(p, "name"));
        if (q == NULL)
            str_addf(out, "differs  plan         %s: only the first has it\n", str_at(p, "name"));
        else if (strcmp(str_at(p, "digest"), str_at(q, "digest")) != 0)
            str_addf(out, "differs  plan         %s: %.12s, %.12s\n", str_at(p, "name"), str_at(p, "digest"),
                     str_at(q, "digest"));
    }
    json_array_foreach(plans, i, q) if (named(json_object_get(a, "plans"), str_at(q, "name")) == NULL)
        str_addf(out, "differs  plan         %s: only the second has it\n", str_at(q, "name"));
}

static void spread_of(const json_t *j, char out[40])
{
    out[0] = '\0';
    if (json_is_object(j))
        snprintf(out, 40, "(%.4g..%.4g)", num_at(j, "least"), num_at(j, "most"));
}

/* Each figure of a, with b's; measured: no others. */
static void compare_figures(const char *name, const json_t *a, const json_t *b, bool measured, Str *out)
{
    const char *key;
    json_t *x;

    json_object_foreach((json_t *)(uintptr_t)a, key, x)
    {
        const json_t *y = json_object_get(b, key);
        char s[40], t[40];
        double v, w;
        if ((measured && !json_is_object(x)) || !figure_value(x, &v) || !figure_value(y, &w))
            continue;
        spread_of(x, s);
        spread_of(y, t);
        str_addf(out, "%-60s %-14s %12.4g %-20s %12.4g %-20s ", name, key, v, s, w, t);
        if (v > 0)
            str_addf(out, "%7.3fx\n", w / v);
        else
            str_addf(out, "%8s\n", "-");
    }
}

static void compare_lists(const json_t *a, const json_t *b, const char *list, Str *out)
{
    const json_t *x, *y, *ours = json_object_get(a, list), *theirs = json_object_get(b, list);
    size_t i;

    json_array_foreach(ours, i, x)
    {
        y = named(theirs, str_at(x, "name"));
        if (y == NULL)
            str_addf(out, "%-60s only the first has it\n", str_at(x, "name"));
        else {
            compare_figures(str_at(x, "name"), x, y, strcmp(list, "launches") == 0, out);
            if (json_object_get(x, "tokens_hash") &&
                !json_equal(json_object_get(x, "tokens_hash"), json_object_get(y, "tokens_hash")))
                str_addf(out, "%-60s other tokens were generated\n", str_at(x, "name"));
        }
    }
    json_array_foreach(theirs, i, y) if (named(ours, str_at(y, "name")) == NULL)
        str_addf(out, "%-60s only the second has it\n", str_at(y, "name"));
}

void record_compare(const json_t *a, const json_t *b, Str *out)
{
    static const char *const facts[] = {"command",       "version",      "commit",      "target",
                                        "target_hash",   "device.class", "device.name", "device.units",
                                        "device.clocks", "host",         "model",       "kernels"};

    str_addf(out, "first    %s, commit %.12s, %s\nsecond   %s, commit %.12s, %s\n", str_at(a, "date"),
             str_at(a, "commit"), str_at(a, "device.name"), str_at(b, "date"), str_at(b, "commit"),
             str_at(b, "device.name"));
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        differs(a, b, facts[i], out);
    compare_plans(a, b, out);
    str_addf(out, "%-60s %-14s %12s %-20s %12s %-20s %8s\n", "", "figure", "first", "(least..most)", "second", "",
             "ratio");
    compare_figures("all", a, b, false, out);
    compare_figures("start", json_object_get(a, "start"), json_object_get(b, "start"), false, out);
    compare_lists(a, b, "rows", out);
    compare_lists(a, b, "launches", out);
}
