/* test_jinja.c - the template language. Recorded output comes from Jinja2 3.1.6 with the settings of Transformers. */
#include "text/jinja.h"

#include "text_fixture.h"

typedef struct Rendered {
    Status st;
    Str out;
    TextSpans user;
    Err err;
} Rendered;

/* vars: a JSON object; every variable whose name begins with "u_" is the user's. */
static Rendered render_with(const char *template_text, const json_t *vars, JinjaLimits limits)
{
    Rendered r = {.out = STR_INIT, .user = TEXT_SPANS_INIT, .err = {""}};
    Jinja *t = NULL;
    JinjaVar list[64];
    JinjaEnv env = {.vars = list, .has_time = true, .time_s = 1700000000, .limits = limits};
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)vars, key, v) list[env.n_vars++] =
        (JinjaVar){key, v, strncmp(key, "u_", 2) == 0};
    r.st = jinja_parse(&t, template_text, strlen(template_text), "template", &r.err);
    if (r.st == ST_OK)
        r.st = jinja_render(t, &env, &r.out, &r.user, &r.err);
    jinja_free(t);
    return r;
}

static void rendered_release(Rendered *r)
{
    str_release(&r->out);
    text_spans_release(&r->user);
}

static void assert_renders(const char *template_text, const char *json, const char *want)
{
    json_error_t e;
    json_t *vars = json_loads(json, 0, &e);
    Rendered r = render_with(template_text, vars, (JinjaLimits){0});
    if (r.st != ST_OK)
        fail_msg("%s: %s", template_text, r.err.msg);
    assert_string_equal(str_c(&r.out), want);
    rendered_release(&r);
    json_decref(vars);
}

static void assert_fails(const char *template_text, Status st, const char *says)
{
    json_t *vars = json_pack("{s:[i,i,i], s:s, s:n}", "x", 1, 2, 3, "s", "text", "z");
    Rendered r = render_with(template_text, vars, (JinjaLimits){0});
    if (r.st != st || !strstr(r.err.msg, says) || r.out.len || r.user.n)
        fail_msg("%s: status %d, \"%s\"", template_text, r.st, r.err.msg);
    rendered_release(&r);
    json_decref(vars);
}

static void jinja__prints_what_jinja2_prints(void **state)
{
    (void)state;
    json_t *root = fixture_load("jinja_cases.json"), *cases = json_object_get(root, "cases"), *c;
    size_t i, wrong = 0;
    assert_true(json_array_size(cases) > 150);
    json_array_foreach(cases, i, c)
    {
        const char *text = json_string_value(json_object_get(c, "template"));
        const json_t *want = json_object_get(c, "out");
        Rendered r = render_with(text, json_object_get(root, "context"), (JinjaLimits){0});
        if (want ? r.st != ST_OK || r.out.len != json_string_length(want) ||
                       memcmp(str_c(&r.out), json_string_value(want), r.out.len) != 0
                 : r.st != (strcmp(json_string_value(json_object_get(c, "fails")), "parse") ? ST_INVALID : ST_FORMAT)) {
            print_message("%s\n  gave \"%s\" (%s)\n", text, str_c(&r.out), r.err.msg);
            wrong++;
        }
        rendered_release(&r);
    }
    assert_int_equal(wrong, 0);
    json_decref(root);
}

static void jinja__slices_loop_control_and_macros(void **state)
{
    (void)state;
    assert_renders("{% for m in x[::-1] %}{{ m }}{{ loop.index0 }}{% endfor %}", "{\"x\":[1,2,3]}", "302112");
    assert_renders("{{ x[:-n]|join(\"\") }}", "{\"x\":[\"a\",\"b\",\"c\"],\"n\":1}", "ab");
    assert_renders("{% for i in x %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "{\"x\":[1,2,3]}", "1");
    assert_renders("{% for i in x %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "{\"x\":[1,2,3]}",
                   "13");
    assert_renders(
        "{% set ns = namespace(v=0) %}{% for i in [1,2] %}{% set ns.v = ns.v + i %}{% set q = i %}{% endfor %}"
        "{{ ns.v }}{{ q }}",
        "{}", "3");
    assert_renders("{% macro t(c) %}{% if c is string %}{{ c }}{% elif c is iterable %}{% for p in c %}{{ p.text }}"
                   "{% endfor %}{% endif %}{% endmacro %}{{ t(\"a\") }}{{ t([{\"text\":\"b\"}]) }}{{ t(none) }}",
                   "{}", "ab");
}

static void jinja__tojson_prints_as_transformers_does(void **state)
{
    (void)state;
    const char *vars = "{\"v\":{\"b\":1,\"a\":[\"é\",true,null,\"<&'\\\"\"]}}";
    assert_renders("{{ v|tojson }}", vars, "{\"b\": 1, \"a\": [\"é\", true, null, \"<&'\\\"\"]}");
    assert_renders("{{ v|tojson(indent=2) }}", "{\"v\":{\"b\":1,\"a\":[]}}", "{\n  \"b\": 1,\n  \"a\": []\n}");
    assert_renders("{{ v|tojson(ensure_ascii=true) }}", "{\"v\":\"é🦙\"}", "\"\\u00e9\\ud83e\\udd99\"");
}

static void jinja__parse_errors_give_row_and_column(void **state)
{
    (void)state;
    assert_fails("a\nb {% unknown %}", ST_FORMAT, "template: row 2, column 6: there is no tag named 'unknown'");
    assert_fails("é{{ x | nofilter }}", ST_FORMAT, "row 1, column 9: there is no filter named 'nofilter'");
    assert_fails("{{ x is notest }}", ST_FORMAT, "row 1, column 9");
    assert_fails("{% if x %}\n", ST_FORMAT, "row 1, column 4: this tag is not closed; {% endif %} is missing");
    assert_fails("{% for a in x %}", ST_FORMAT, "{% endfor %}");
    assert_fails("\n{{ x", ST_FORMAT, "row 2, column 1");
    assert_fails("{{ 'x }}", ST_FORMAT, "string has no end");
    assert_fails("{# x", ST_FORMAT, "comment is not closed");
    assert_fails("{% raw %}", ST_FORMAT, "endraw");
    assert_fails("{{ (1] }}", ST_FORMAT, "closes nothing");
    assert_fails("{{ 1 + }}", ST_FORMAT, "expected a value");
    assert_fails("{{ f(a=1, 2) }}", ST_FORMAT, "without a name");
    assert_fails("{{ 99999999999999999999 }}", ST_FORMAT, "64 bits");
    assert_fails("{% break %}", ST_FORMAT, "inside a for loop");
    assert_fails("{% for a in x recursive %}{% endfor %}", ST_FORMAT, "recursive");
    assert_fails("{% set 1 = 2 %}", ST_FORMAT, "name to assign");
    assert_fails("\xff", ST_FORMAT, "UTF-8");
}

static void jinja__render_errors_give_row_and_column(void **state)
{
    (void)state;
    assert_fails("a\n{{ raise_exception('roles must alternate') }}", ST_INVALID,
                 "row 2, column 19: roles must alternate");
    assert_fails("{{ nope.field }}", ST_INVALID, "'nope' is undefined");
    assert_fails("{{ s + 1 }}", ST_INVALID, "string and int");
    assert_fails("{{ s + nope }}", ST_INVALID, "'nope' is undefined");
    assert_fails("{{ 1 / 0 }}", ST_INVALID, "division by zero");
    assert_fails("{{ 1 // 0 }}", ST_INVALID, "division by zero");
    assert_fails("{{ 1 % 0 }}", ST_INVALID, "division by zero");
    assert_fails("{{ x.append(1) }}", ST_INVALID, "'append' is undefined");
    assert_fails("{% set s.a = 1 %}", ST_INVALID, "namespace");
    assert_fails("{% for a, b in x %}{% endfor %}", ST_INVALID, "cannot be iterated");
    assert_fails("{{ 9223372036854775807 + 1 }}", ST_INVALID, "64 bits");
    assert_fails("{{ -9223372036854775807 - 2 }}", ST_INVALID, "64 bits");
    assert_fails("{{ x | sort(attribute='a') | first + z }}", ST_INVALID, "undefined");
    assert_fails("{{ (-9223372036854775807 - 1) // -1 }}", ST_INVALID, "64 bits");
    assert_fails("{{ x[::0] }}", ST_INVALID, "step");
    assert_fails("{{ s() }}", ST_INVALID, "cannot be called");
    assert_fails("{{ range(1000000000) | length }}", ST_INVALID, "100000");
}

static void jinja__costs_are_bounded(void **state)
{
    (void)state;
    assert_fails("{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}", ST_BUSY, "limit");
    assert_fails(
        "{% set ns = namespace(s='xxxxxxxx') %}{% for a in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        ST_BUSY, "limit");
    assert_fails("{{ 'x' * 9000000000000000000 }}", ST_BUSY, "limit");
    assert_fails("{{ [0] * 9000000000000000000 }}", ST_BUSY, "limit");
    assert_fails("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", ST_BUSY, "nest deeper");
    assert_fails(
        "{% set ns = namespace(l=[]) %}{% for a in range(1000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
        ST_INVALID, "nests too deeply");
    assert_fails("{% set ns = namespace(l=[]) %}{% for a in range(1000) %}{% set ns.l = [ns.l] %}{% endfor %}"
                 "{{ ns.l|tojson }}",
                 ST_INVALID, "nests deeper");
    assert_fails("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}", ST_INVALID, "nests too deeply");

    json_t *vars = json_object();
    Rendered r = render_with("{% for i in range(100) %}0123456789{% endfor %}", vars, (JinjaLimits){.output = 500});
    assert_int_equal(r.st, ST_BUSY);
    assert_int_equal(r.out.len, 0);
    rendered_release(&r);
    r = render_with("{% for i in range(100) %}{% endfor %}", vars, (JinjaLimits){.steps = 50});
    assert_int_equal(r.st, ST_BUSY);
    rendered_release(&r);
    r = render_with("{{ range(1000)|list|length }}", vars, (JinjaLimits){.bytes = 4096});
    assert_int_equal(r.st, ST_BUSY);
    rendered_release(&r);
    json_decref(vars);
}

static void jinja__deep_sources_are_refused(void **state)
{
    (void)state;
    static const char *const open[] = {"(", "[", "{% if x %}", "-", "not ", "x[", "f(", "{1:", "x if x else "};
    for (size_t k = 0; k < sizeof open / sizeof *open; k++) {
        Str s = STR_INIT;
        if (open[k][1] != '%')
            str_adds(&s, "{{ ");
        for (int i = 0; i < 5000; i++)
            str_adds(&s, open[k]);
        Jinja *t;
        Err err;
        assert_int_equal(jinja_parse(&t, str_c(&s), s.len, "template", &err), ST_FORMAT);
        str_release(&s);
    }
    Str sum = STR_INIT; /* left-deep without any nesting in the source */
    str_adds(&sum, "{{ 1");
    for (int i = 0; i < 5000; i++)
        str_adds(&sum, " + 1");
    str_adds(&sum, " }}");
    Jinja *t;
    Err err;
    assert_int_equal(jinja_parse(&t, str_c(&sum), sum.len, "template", &err), ST_FORMAT);
    str_release(&sum);
}

/* Templates for several engines name filters of other engines in branches that are not taken here. */
static void jinja__unknown_filter_in_a_branch_fails_only_when_reached(void **state)
{
    (void)state;
    assert_renders("{% if false %}{{ x|from_json }}{{ x is weird }}{% else %}ok{% endif %}", "{}", "ok");
    assert_fails("{% if true %}{{ x|from_json }}{% endif %}", ST_INVALID, "no filter named 'from_json'");
    assert_fails("{% if true %}{{ x is weird }}{% endif %}", ST_INVALID, "no test named 'weird'");
    assert_fails("{% if true %}{% endif %}{{ x|from_json }}", ST_FORMAT, "no filter named 'from_json'");
}

/* Every prefix of a template either parses or is refused; none crashes (run under the sanitizers). */
static void jinja__every_cut_of_a_template_is_handled(void **state)
{
    (void)state;
    static const char text[] =
        "{%- set ns = namespace(a='x\\u00e9', b=[1, 2.5e3][::-1]) -%}{# c #}{% raw %}{{ }}{% endraw %}"
        "{% macro m(a, b=1) %}{{ a ~ b }}{% endmacro %}{% for k, v in d.items() if v is not none %}"
        "{{ loop.index0 }}{{ m(k, b=v)|upper|replace('A', 'b') }}{% else %}none{% endfor %}"
        "{% call(z) m(1) %}{{ z }}{% endcall %}{% filter trim %} a {% endfilter %}{% set q | trim %} b {% endset %}"
        "{% if a is divisibleby 3 and not b or c in [1] %}{% elif x %}{% else %}{{ {'a': 1}['a'] }}{% endif %}";
    json_t *vars = json_pack("{s:i, s:{s:i}}", "a", 3, "d", "k", 1);
    for (size_t n = 0; n <= sizeof text - 1; n++) {
        char cut[sizeof text];
        memcpy(cut, text, n);
        cut[n] = 0;
        Rendered r = render_with(cut, vars, (JinjaLimits){0});
        assert_true(r.st == ST_OK || r.st == ST_FORMAT || r.st == ST_INVALID);
        rendered_release(&r);
    }
    json_decref(vars);
}

static void assert_user_text(const char *template_text, const char *want)
{
    json_t *vars = json_pack("{s:s, s:{s:[s]}, s:s, s:[s,s]}", "u_t", "Ab<c>", "u_d", "k", "v\"w", "own", "own", "u_l",
                             "P,Q", "R");
    Rendered r = render_with(template_text, vars, (JinjaLimits){0});
    Str got = STR_INIT;
    size_t at = 0;
    if (r.st != ST_OK)
        fail_msg("%s: %s", template_text, r.err.msg);
    for (size_t i = 0; i < r.user.n; i++) {
        str_add(&got, r.out.p + at, r.user.span[i].start - at);
        str_adds(&got, "[");
        str_add(&got, r.out.p + r.user.span[i].start, r.user.span[i].end - r.user.span[i].start);
        str_adds(&got, "]");
        at = r.user.span[i].end;
    }
    str_add(&got, str_c(&r.out) + at, r.out.len - at);
    assert_string_equal(str_c(&got), want);
    str_release(&got);
    rendered_release(&r);
    json_decref(vars);
}

/* [..] is the user's. */
static void jinja__text_keeps_its_origin_through_every_operation(void **state)
{
    (void)state;
    assert_user_text("x{{ u_t }}y", "x[Ab<c>]y");
    assert_user_text("{{ '<|a|>' + u_t + '<|b|>' }}", "<|a|>[Ab<c>]<|b|>");
    assert_user_text("{{ own ~ u_t ~ 1 }}", "own[Ab<c>]1");
    assert_user_text("{{ ('(' + u_t + ')')|upper }}", "([AB<C>])");
    assert_user_text("{{ ('(' + u_t + ')')[1:3] }}", "[Ab]");
    assert_user_text("{{ ('(' + u_t + ')')[::-1] }}", ")[>c<bA](");
    assert_user_text("{{ ('(' + u_t + ')')|replace('b', 'XY') }}", "([A]XY[<c>])");
    assert_user_text("{{ '<s>'.replace('s', u_t) }}", "<[Ab<c>]>");
    assert_user_text("{{ (' ' + u_t + ' ')|trim }}", "[Ab<c>]");
    assert_user_text("{{ u_t.split('<')|join('|') }}", "[Ab]|[c>]");
    assert_user_text("{{ u_t.join(['1','2']) }}", "1[Ab<c>]2");
    assert_user_text("{{ u_d|tojson }}", "{\"[k]\": [\"[v\\\"w]\"]}");
    assert_user_text("{{ u_l }}", "['[P,Q]', '[R]']");
    assert_user_text("{{ u_l|map('lower')|list|join(own) }}", "[p,q]own[r]");
    assert_user_text("{{ '%s=%s'|format(own, u_t) }}{{ '{}'.format(u_t) }}", "own=[Ab<c>Ab<c>]");
    assert_user_text("{{ ('a\n' + u_t)|indent(2) }}", "a\n  [Ab<c>]");
    assert_user_text("{{ u_t|e }}", "[Ab&lt;c&gt;]");
    assert_user_text("{{ u_t|title ~ u_t|capitalize }}", "[Ab<C>Ab<c>]");
    assert_user_text("{% set q %}a{{ u_t }}b{% endset %}{{ q }}", "a[Ab<c>]b");
    assert_user_text("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(u_t) }}", "<[Ab<c>]>");
    assert_user_text("{% filter upper %}a{{ u_t }}{% endfilter %}", "A[AB<C>]");
    assert_user_text("{% for k, v in u_d.items() %}{{ k }}={{ v[0] }}{% endfor %}", "[k]=[v\"w]");
    assert_user_text("{% set ns = namespace(x='') %}{% set ns.x = ns.x + u_t + '!' %}{{ ns.x }}", "[Ab<c>]!");
    assert_user_text("{{ u_t * 2 }}{{ u_t|first }}{{ u_t|list|last }}", "[Ab<c>Ab<c>A>]");
    assert_user_text("{{ u_t|string|safe }}{{ [u_t]|string }}", "[Ab<c>]['[Ab<c>]']");
    assert_user_text("{{ own if u_t else '' }}{{ u_t|length }}{{ u_t == 'x' }}", "own5False");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jinja__prints_what_jinja2_prints),
        cmocka_unit_test(jinja__slices_loop_control_and_macros),
        cmocka_unit_test(jinja__tojson_prints_as_transformers_does),
        cmocka_unit_test(jinja__parse_errors_give_row_and_column),
        cmocka_unit_test(jinja__render_errors_give_row_and_column),
        cmocka_unit_test(jinja__costs_are_bounded),
        cmocka_unit_test(jinja__deep_sources_are_refused),
        cmocka_unit_test(jinja__unknown_filter_in_a_branch_fails_only_when_reached),
        cmocka_unit_test(jinja__every_cut_of_a_template_is_handled),
        cmocka_unit_test(jinja__text_keeps_its_origin_through_every_operation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
