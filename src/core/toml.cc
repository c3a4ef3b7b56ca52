/* toml.cc - tomlplusplus at the bottom of the tree: text in, a plain C tree out. The only C++ file.
 *
 * The parser's tables are sorted by key; the tree here has them in file order, by the position of each key (a table
 * that appears first as a prefix, as in [a.b], stands where the prefix stands). Every node, key and string is copied
 * into the arena that the Toml owns, and the parser's own tree is gone before the call returns.
 *
 * Invariants: no exception leaves this file; no string holds a NUL, since C readers would see it cut; nesting cannot
 * run anybody out of stack. The last needs three bounds: the parser bounds nested values (256), but not the parts of
 * a dotted key, each of which is a table that its destructor recurses into; key_chains_short() bounds those before
 * the parser runs, and nesting_max bounds the tree that is handed out. */
#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstring>
#include <new>
#include <string_view>
#include <toml++/toml.h>
#include <vector>

extern "C" {
#include "core/arena.h"
#include "core/status.h"
}
#include "core/toml.h"

namespace
{

constexpr size_t key_parts_max = 16;
constexpr unsigned nesting_max = 64;

struct Place {
    size_t line = 1, col = 1;
};

/* Skips the string that starts at text[i]; returns the index behind it. Text that is no valid string is the parser's
 * to refuse; here it only must not hide a dot that the parser would see, so a broken string ends with its line. */
size_t skip_string(std::string_view text, size_t i)
{
    char quote = text[i];
    bool multi = text.substr(i, 3) == std::string_view(quote == '"' ? "\"\"\"" : "'''");

    i += multi ? 3 : 1;
    while (i < text.size()) {
        if (text[i] == '\\' && quote == '"')
            i += 2;
        else if (!multi && text[i] == '\n')
            return i;
        else if (text[i] != quote)
            i++;
        else if (!multi)
            return i + 1;
        else if (text.substr(i, 3) == std::string_view(quote == '"' ? "\"\"\"" : "'''"))
            return i + std::min(text.substr(i, 5).find_first_not_of(quote), size_t{5}); /* two more may belong inside */
        else
            i++;
    }
    return text.size();
}

/* False when a dotted key or table name has more than key_parts_max parts; *at is then its last dot looked at. The
 * count starts anew at every byte that ends a key, and a number's single dot does not come near the bound. */
bool key_chains_short(std::string_view text, Place *at)
{
    size_t dots = 0;

    for (size_t i = 0; i < text.size();) {
        switch (text[i]) {
        case '"':
        case '\'':
            i = skip_string(text, i);
            continue;
        case '#':
            while (i < text.size() && text[i] != '\n')
                i++;
            continue;
        case '.':
            if (++dots >= key_parts_max) {
                std::string_view before = text.substr(0, i);
                at->line = 1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
                at->col = i - before.rfind('\n'); /* npos is -1: the first line starts at column 1 */
                return false;
            }
            break;
        case '\n':
        case '=':
        case ',':
        case '[':
        case '{':
            dots = 0;
            break;
        default:
            break;
        }
        i++;
    }
    return true;
}

/* What a conversion needs at every level. */
struct Copy {
    Arena *arena;
    const char *name;
    Err *err;
};

Status out_of_memory(const Copy &c)
{
    return err_set(c.err, ST_NOMEM, "%s: out of memory while reading the TOML file", c.name);
}

Status refuse(const Copy &c, const toml::source_position &at, const char *what)
{
    return err_set(c.err, ST_FORMAT, "%s:%u:%u: %s", c.name, at.line, at.column, what);
}

Status copy_text(const Copy &c, std::string_view s, const toml::source_position &at, const char **out)
{
    if (s.find('\0') != std::string_view::npos)
        return refuse(c, at, "a key or string holds a NUL character (\\u0000); remove it");
    *out = arena_strndup(c.arena, s.data(), s.size());
    return *out != nullptr ? ST_OK : out_of_memory(c);
}

Status copy_list(const Copy &c, const toml::node &from, unsigned depth, TomlNode *to);

/* Fills everything of *to but its key. */
Status copy_node(const Copy &c, const toml::node &from, unsigned depth, TomlNode *to)
{
    const toml::source_position &at = from.source().begin;

    to->line = at.line;
    to->col = at.column;
    switch (from.type()) {
    case toml::node_type::table:
        to->kind = TOML_TABLE;
        return copy_list(c, from, depth + 1, to);
    case toml::node_type::array:
        to->kind = TOML_ARRAY;
        return copy_list(c, from, depth + 1, to);
    case toml::node_type::string:
        to->kind = TOML_STRING;
        return copy_text(c, from.as_string()->get(), at, &to->str);
    case toml::node_type::integer:
        to->kind = TOML_INT;
        to->i = from.as_integer()->get();
        return ST_OK;
    case toml::node_type::floating_point:
        to->kind = TOML_FLOAT;
        to->f = from.as_floating_point()->get();
        return ST_OK;
    case toml::node_type::boolean:
        to->kind = TOML_BOOL;
        to->b = from.as_boolean()->get();
        return ST_OK;
    default:
        return refuse(c, at, "dates and times are not used here; write a string");
    }
}

struct Entry {
    const toml::key *key; /* NULL in an array */
    const toml::node *value;
};

bool stands_before(const Entry &a, const Entry &b)
{
    const toml::source_position &x = a.key->source().begin, &y = b.key->source().begin;

    return x.line != y.line ? x.line < y.line : x.column < y.column;
}

/* Tables in file order, arrays in their own. */
Status copy_list(const Copy &c, const toml::node &from, unsigned depth, TomlNode *to)
{
    std::vector<Entry> entries;

    if (depth > nesting_max)
        return refuse(c, from.source().begin, "tables and arrays nest too deeply; flatten the file");
    if (const toml::table *table = from.as_table()) {
        entries.reserve(table->size());
        for (auto it = table->cbegin(); it != table->cend(); ++it)
            entries.push_back({&it->first, &it->second});
        std::sort(entries.begin(), entries.end(), stands_before);
    } else {
        const toml::array *array = from.as_array();
        entries.reserve(array->size());
        for (const toml::node &item : *array)
            entries.push_back({nullptr, &item});
    }
    if (entries.size() > UINT32_MAX)
        return refuse(c, from.source().begin, "too many entries");

    TomlNode *items = ARENA_ARRAY(c.arena, TomlNode, entries.size());
    if (items == nullptr)
        return out_of_memory(c);
    for (size_t i = 0; i < entries.size(); i++) {
        Status st = ST_OK;
        if (entries[i].key != nullptr)
            st = copy_text(c, entries[i].key->str(), entries[i].key->source().begin, &items[i].key);
        if (st == ST_OK)
            st = copy_node(c, *entries[i].value, depth, &items[i]);
        if (st != ST_OK)
            return st;
    }
    to->list.items = items;
    to->list.len = static_cast<uint32_t>(entries.size());
    return ST_OK;
}

/* May throw; toml_parse() catches. */
Status parse_into(std::string_view text, const Copy &c, Toml *t)
{
    Place at;

    if (!key_chains_short(text, &at))
        return err_set(c.err, ST_FORMAT, "%s:%zu:%zu: a dotted key has more than %zu parts; nest less deeply", c.name,
                       at.line, at.col, key_parts_max);
    try {
        toml::table root = toml::parse(text);
        Status st = copy_node(c, root, 0, &t->root);
        t->root.line = t->root.col = 1;
        return st;
    } catch (const toml::parse_error &e) {
        std::string_view what = e.description();
        return err_set(c.err, ST_FORMAT, "%s:%u:%u: %.*s", c.name, e.source().begin.line, e.source().begin.column,
                       static_cast<int>(std::min<size_t>(what.size(), 400)), what.data());
    }
}

} // namespace

extern "C" Status toml_parse(const char *text, size_t len, const char *name, Toml **out, Err *err)
{
    Arena *arena = arena_new();
    Toml *t = arena != nullptr ? ARENA_NEW(arena, Toml) : nullptr;
    Status st = ST_NOMEM;

    if (t != nullptr) {
        t->arena = arena;
        t->name = arena_strdup(arena, name);
    }
    if (t == nullptr || t->name == nullptr) {
        err_set(err, st, "%s: out of memory while reading the TOML file", name);
        goto done;
    }
    try {
        st = parse_into(std::string_view(text, len), Copy{arena, t->name, err}, t);
    } catch (const std::bad_alloc &) {
        st = err_set(err, ST_NOMEM, "%s: out of memory while reading the TOML file", name);
    } catch (...) {
        st = err_set(err, ST_FORMAT, "%s: the TOML parser failed; check that the file is plain UTF-8 text", name);
    }
    if (st == ST_OK) {
        *out = t;
        arena = nullptr; /* the Toml owns it now */
    }
done:
    arena_free(arena);
    return st;
}

extern "C" void toml_free(Toml *t)
{
    if (t != nullptr)
        arena_free(t->arena);
}
