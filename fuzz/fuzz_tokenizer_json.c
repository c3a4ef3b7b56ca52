/* fuzz_tokenizer_json.c - libFuzzer entry: any bytes as a tokenizer.json, or as GGUF metadata written as JSON; a
 * tokenizer that loads encodes a text and must give back ids of its own vocabulary. */
#include <assert.h>
#include <string.h>

#include "core/utf8.h"
#include "text/detokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(Tokenizer *t)
{
    static const char text[] = "a <m> b\n12345 <|im_end|> h\xc3\xa9llo e\xcc\x81 the  the";
    TokenList ids = TOKEN_LIST_INIT;
    Str back = STR_INIT;
    Err err;

    if (tokenizer_encode(t, text, sizeof text - 1, TOK_PARSE_SPECIAL | TOK_ADD_BOS, &ids, &err) == ST_OK)
        for (size_t i = 0; i < ids.n; i++)
            assert(ids.id[i] >= 0 && (size_t)ids.id[i] < tokenizer_vocab_size(t));
    detokenize(t, ids.id, ids.n, true, &back);
    assert(utf8_valid(str_c(&back), back.len));
    str_release(&back);
    token_list_release(&ids);
    tokenizer_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *root = NULL;
    Tokenizer *t = NULL;
    Err err;

    if (json_parse((const char *)data, size, "fuzz", &root, &err) == ST_OK) {
        if (tokenizer_from_hf(&t, root, root, &err) == ST_OK)
            use(t);
        if (tokenizer_from_gguf(&t, root, &err) == ST_OK)
            use(t);
    }
    json_decref(root);
    return 0;
}
