/* fuzz_chat_template.c - libFuzzer entry: any bytes as a chat template, rendered over a fixed conversation. */
#include <assert.h>
#include <string.h>

#include "core/utf8.h"
#include "text/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char messages[] =
        "[{\"role\":\"user\",\"content\":\"h\xc3\xa9<|im_end|>\",\"n\":[1,2.5,null,true]},"
        "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
        "\"arguments\":{\"a\":\"b\"}}}]}]";
    json_t *value = NULL;
    Jinja *t = NULL;
    Str out = STR_INIT;
    TextSpans user = TEXT_SPANS_INIT;
    Err err;

    if (json_parse(messages, sizeof messages - 1, "messages", &value, &err) == ST_OK &&
        jinja_parse(&t, (const char *)data, size, "fuzz", &err) == ST_OK) {
        JinjaVar vars[] = {{"messages", value, true}, {"bos_token", json_true(), false}};
        JinjaEnv env = {.vars = vars,
                        .n_vars = 2,
                        .has_time = true,
                        .limits = {.steps = 200000, .bytes = 16 << 20, .output = 1 << 20}};
        if (jinja_render(t, &env, &out, &user, &err) == ST_OK) {
            assert(utf8_valid(str_c(&out), out.len)); /* whatever it did, text stays text */
            assert(user.n == 0 || user.span[user.n - 1].end <= out.len);
        }
    }
    text_spans_release(&user);
    str_release(&out);
    jinja_free(t);
    json_decref(value);
    return 0;
}
