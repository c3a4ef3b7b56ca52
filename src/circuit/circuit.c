/* circuit.c - the library of circuits: finds the files of each architecture, reads them, and checks them against each
 * other, so that a mistake in a TOML file is found when the program starts and not when a checkpoint comes along.
 *
 *   circuits/ARCH.toml  ARCH.config.toml  ARCH.weights.toml      an architecture
 *   circuits/blocks/NAME.toml                                    blocks that architectures name
 *   circuits/config/NAME.toml  circuits/weights/NAME.toml        parts that their maps `use`
 *
 * Checked across files: every value, switch, dim, rope and list that a block or a layout asks for is given by the config
 * map, set by the architecture, or has a default in the block; every required weight slot is mapped. */
#include "circuit/circuit_parts.h"
#include "core/str.h"
#include <stdlib.h>
#include <string.h>

struct CircuitLibrary {
    Arena *arena;
    Toml **tomls; /* of all files, in the order of the files */
    uint32_t n_tomls;
    CircuitBlock *blocks;
    uint32_t n_blocks;
    Circuit *circuits;
    uint32_t n_circuits;
};

static const char root_dir[] = "circuits/";

/* ---- files ------------------------------------------------------------------------------------------------------- */
static const Toml *find_toml(const CircuitLibrary *lib, const char *dir, const char *name, const char *ext)
{
    for (uint32_t i = 0; i < lib->n_tomls; i++) {
        const char *at = lib->tomls[i]->name + sizeof root_dir - 1;
        size_t d = strlen(dir), n = strlen(name);

        if (strncmp(at, dir, d) == 0 && strncmp(at + d, name, n) == 0 && strcmp(at + d + n, ext) == 0)
            return lib->tomls[i];
    }
    return NULL;
}

/* The name between dir and ext, or NULL when the file is not such a one. */
static const char *file_stem(CircuitLibrary *lib, const Toml *t, const char *dir, const char *ext)
{
    const char *at = t->name + sizeof root_dir - 1;
    size_t d = strlen(dir), n;

    if (strncmp(at, dir, d) != 0 || !str_ends(at, ext))
        return NULL;
    at += d;
    n = strlen(at) - strlen(ext);
    if (memchr(at, '/', n) != NULL || memchr(at, '.', n) != NULL)
        return NULL;
    return arena_strndup(lib->arena, at, n);
}

/* The parts that a map uses, found in circuits/DIR. */
static Status find_parts(CircuitLibrary *lib, const Reader *r, const char *dir, const Toml *const **out, uint32_t *n)
{
    const char *const *names = NULL;
    const Toml **parts;
    Status st = read_strings(r, &r->toml->root, "use", false, &names, n);

    if (st != ST_OK)
        return st;
    parts = ARENA_ARRAY(lib->arena, const Toml *, *n);
    if (parts == NULL)
        return read_nomem(r);
    for (uint32_t i = 0; i < *n; i++) {
        parts[i] = find_toml(lib, dir, names[i], ".toml");
        if (parts[i] == NULL)
            return read_err(r, &toml_find(&r->toml->root, "use")->list.items[i], "there is no circuits/%s%s.toml", dir,
                            names[i]);
    }
    *out = parts;
    return ST_OK;
}

/* ---- checks across files ----------------------------------------------------------------------------------------- */
typedef struct Names {
    const Circuit *circuit;
    const CircuitKind *kind;
    const CircuitBlock *block;
    const char *unknown; /* the first name of an expression that nothing gives */
} Names;

/* The type of a value by name, where it is declared: kind, architecture, config map, block. */
static bool declared(const Names *n, const char *name, ValueType *type)
{
    const ValueSet *sets[] = {&n->kind->set, &n->circuit->set, NULL, &n->block->defaults};

    for (size_t i = 0; i < 4; i++) {
        const Value *v = sets[i] != NULL ? values_find(sets[i], name) : NULL;

        if (sets[i] == NULL && config_map_declares(n->circuit->config, name, type))
            return true;
        if (v == NULL)
            continue;
        if (v->type == VALUE_TEXT && v->text[0] == '$') {
            name = v->text + 1;
            continue;
        }
        *type = v->type;
        return true;
    }
    return false;
}

static void check_name(void *ctx, const char *name)
{
    Names *n = ctx;
    ValueType type;

    if (n->unknown == NULL && (!declared(n, name, &type) || (type != VALUE_INT && type != VALUE_SWITCH)))
        n->unknown = name;
}

static Status check_expr(const Reader *r, Names *n, const TomlNode *at, const Expr *e)
{
    if (e == NULL)
        return ST_OK;
    n->unknown = NULL;
    expr_names(e, check_name, n);
    if (n->unknown == NULL)
        return ST_OK;
    return read_err(r, at, "\"%s\": for %s nothing gives an integer or switch '%s'", expr_text(e), n->circuit->arch,
                    n->unknown);
}

static Status check_param(const Reader *r, Names *n, const ParamDef *def, const CircuitParam *p)
{
    static const char *const want[] = {"an integer", "a number", "text"};
    ValueType type;
    bool fits;

    if (p->form == PARAM_EXPR)
        return check_expr(r, n, p->at, p->expr);
    if (p->form != PARAM_VALUE)
        return ST_OK;
    if (!declared(n, p->name, &type))
        return read_err(r, p->at, "for %s nothing gives a value '%s': add it to %s.config.toml, or to [defaults] here",
                        n->circuit->arch, p->name, n->circuit->arch);
    fits = def->type == PARAM_INT     ? type == VALUE_INT
           : def->type == PARAM_FLOAT ? type == VALUE_FLOAT || type == VALUE_INT
                                      : type == VALUE_TEXT;
    if (fits)
        return ST_OK;
    return read_err(r, p->at, "'%s' must be %s, but for %s value '%s' is a %s", def->name, want[def->type],
                    n->circuit->arch, p->name, value_type_name(type));
}

static Status check_table(const Reader *r, const Names *n, const CircuitNode *node)
{
    const TomlNode *at = toml_find(node->at, "table");
    ValueType type;

    if (node->table == NULL)
        return ST_OK;
    if (node->table[0] == '$') {
        if (!declared(n, node->table + 1, &type) || type != VALUE_TEXT)
            return read_err(r, at, "for %s nothing gives a text '%s' that names a rope", n->circuit->arch,
                            node->table + 1);
        return ST_OK;
    }
    if (!config_map_declares_rope(n->circuit->config, node->table))
        return read_err(r, at, "%s.config.toml has no [rope.%s]", n->circuit->arch, node->table);
    return ST_OK;
}

static Status check_block(CircuitLibrary *lib, Names *n, WeightPart part, Err *err)
{
    const CircuitBlock *b = n->block;
    Reader r = {.toml = b->toml, .arena = lib->arena, .err = err};
    Status st = ST_OK;

    for (uint32_t i = 0; i < b->n_slots; i++) {
        TRY(check_expr(&r, n, b->slots[i].at, b->slots[i].n));
        TRY(check_expr(&r, n, b->slots[i].at, b->slots[i].k));
        TRY(check_expr(&r, n, b->slots[i].at, b->slots[i].experts));
    }
    for (uint32_t i = 0; i < b->n_states; i++) {
        TRY(check_expr(&r, n, &b->toml->root, b->states[i].window));
        for (uint32_t k = 0; k < b->states[i].n_parts; k++) {
            TRY(check_expr(&r, n, &b->toml->root, b->states[i].heads[k]));
            TRY(check_expr(&r, n, &b->toml->root, b->states[i].widths[k]));
        }
    }
    for (uint32_t i = 0; i < b->n_checks; i++) {
        TRY(check_expr(&r, n, b->checks[i].at, b->checks[i].that));
        TRY(check_expr(&r, n, b->checks[i].at, b->checks[i].when));
    }
    for (uint32_t i = 0; i < b->n_nodes; i++) {
        const CircuitNode *node = &b->nodes[i];

        TRY(check_expr(&r, n, node->at, node->when));
        for (uint32_t k = 0; k < node->op->n_params; k++)
            TRY(check_param(&r, n, &node->op->params[k], &node->param[k]));
        TRY(check_table(&r, n, node));
        /* A node behind a switch is found out when the switch is on. */
        for (uint32_t k = 0; k < node->op->n_weights && node->when == NULL; k++)
            for (int gguf = 0; gguf < 2 && !node->op->weights[k].optional; gguf++)
                if (config_map_serves(n->circuit->config, gguf) && weight_map_serves(n->circuit->weights, gguf) &&
                    !weight_map_declares(n->circuit->weights, gguf, part, node->weight[k]))
                    return read_err(&r, node->at, "%s.weights.toml maps no tensor of %s files to weight %s",
                                    n->circuit->arch, gguf ? "GGUF" : "safetensors", node->weight[k]);
    }
done:
    return st;
}

static Status check_kind(CircuitLibrary *lib, const Circuit *c, const CircuitKind *kind, WeightPart part, Err *err)
{
    Status st = ST_OK;

    for (uint32_t i = 0; st == ST_OK && i < kind->n_blocks; i++) {
        Names n = {.circuit = c, .kind = kind, .block = kind->blocks[i]};

        for (uint32_t k = 0; k < i; k++)
            for (uint32_t a = 0; a < kind->blocks[i]->n_nodes; a++)
                for (uint32_t b = 0; b < kind->blocks[k]->n_nodes; b++)
                    if (strcmp(kind->blocks[i]->nodes[a].id, kind->blocks[k]->nodes[b].id) == 0)
                        return err_set(err, ST_FORMAT, "%s: blocks %s and %s of kind %s both have a node '%s'",
                                       c->toml->name, kind->blocks[k]->name, kind->blocks[i]->name, kind->name,
                                       kind->blocks[i]->nodes[a].id);
        st = check_block(lib, &n, part, err);
    }
    return st;
}

static Status check_circuit(CircuitLibrary *lib, const Circuit *c, Err *err)
{
    Reader r = {.toml = c->toml, .arena = lib->arena, .err = err};
    const TomlNode *layout = toml_find(&c->toml->root, "layout");
    ValueType type;
    Status st = ST_OK;

    if (!config_map_declares(c->config, c->layout.layers, &type) || type != VALUE_INT)
        return read_err(&r, toml_find(layout, "layers"), "%s.config.toml gives no integer '%s'", c->arch,
                        c->layout.layers);
    for (uint32_t i = 0; i < c->layout.n_kinds; i++)
        if (!config_map_declares(c->config, c->layout.kinds[i], &type) || type != VALUE_LIST)
            return read_err(&r, toml_find(layout, "kinds"), "%s.config.toml gives no list '%s'", c->arch,
                            c->layout.kinds[i]);
    TRY(check_kind(lib, c, &c->stem, PART_STEM, err));
    TRY(check_kind(lib, c, &c->head, PART_HEAD, err));
    for (uint32_t i = 0; i < c->n_kinds; i++)
        TRY(check_kind(lib, c, &c->kinds[i], PART_LAYER, err));
done:
    return st;
}

/* ---- loading ----------------------------------------------------------------------------------------------------- */
static Status load_circuit(CircuitLibrary *lib, const Toml *t, const char *arch, Circuit *c, Err *err)
{
    Reader r = {.toml = t, .arena = lib->arena, .err = err};
    const Toml *config = find_toml(lib, "", arch, ".config.toml");
    const Toml *weights = find_toml(lib, "", arch, ".weights.toml");
    const Toml *const *parts = NULL;
    uint32_t n = 0;
    Status st = ST_OK;

    if (config == NULL || weights == NULL)
        return err_set(err, ST_FORMAT, "%s: circuits/%s.%s.toml is missing beside it", t->name, arch,
                       config == NULL ? "config" : "weights");
    TRY(circuit_read(&r, arch, lib->blocks, lib->n_blocks, c));
    r.toml = config;
    TRY(find_parts(lib, &r, "config/", &parts, &n));
    TRY(config_map_read(&r, parts, n, &c->config));
    r.toml = weights;
    TRY(find_parts(lib, &r, "weights/", &parts, &n));
    TRY(weight_map_read(&r, parts, n, &c->weights));
    TRY(check_circuit(lib, c, err));
done:
    return st;
}

static Status load_tomls(CircuitLibrary *lib, const EmbeddedFile *files, size_t n_files, Err *err)
{
    Status st = ST_OK;

    for (size_t i = 0; i < n_files; i++) {
        if (!str_starts(files[i].path, root_dir) || !str_ends(files[i].path, ".toml"))
            continue;
        TRY(toml_parse(files[i].text, files[i].len, files[i].path, &lib->tomls[lib->n_tomls], err));
        lib->n_tomls++;
    }
done:
    return st;
}

static Status load_all(CircuitLibrary *lib, Err *err)
{
    Status st = ST_OK;

    for (uint32_t i = 0; i < lib->n_tomls; i++) {
        Reader r = {.toml = lib->tomls[i], .arena = lib->arena, .err = err};
        const char *name = file_stem(lib, lib->tomls[i], "blocks/", ".toml");

        if (name != NULL)
            TRY(block_read(&r, name, &lib->blocks[lib->n_blocks++]));
    }
    for (uint32_t i = 0; i < lib->n_tomls; i++) {
        const char *arch = file_stem(lib, lib->tomls[i], "", ".toml");

        if (arch == NULL)
            continue;
        TRY(load_circuit(lib, lib->tomls[i], arch, &lib->circuits[lib->n_circuits], err));
        lib->n_circuits++;
    }
done:
    return st;
}

Status circuit_library_new(CircuitLibrary **out, const EmbeddedFile *files, size_t n_files, Err *err)
{
    CircuitLibrary *lib = calloc(1, sizeof *lib);
    Status st = ST_OK;

    if (lib != NULL)
        lib->arena = arena_new();
    if (lib != NULL && lib->arena != NULL) {
        lib->tomls = ARENA_ARRAY(lib->arena, Toml *, n_files);
        lib->blocks = ARENA_ARRAY(lib->arena, CircuitBlock, n_files);
        lib->circuits = ARENA_ARRAY(lib->arena, Circuit, n_files);
    }
    if (lib == NULL || lib->arena == NULL || lib->tomls == NULL || lib->blocks == NULL || lib->circuits == NULL) {
        circuit_library_free(lib);
        return err_set(err, ST_NOMEM, "circuits: out of memory");
    }
    TRY(load_tomls(lib, files, n_files, err));
    TRY(load_all(lib, err));
    *out = lib;
    lib = NULL;
done:
    circuit_library_free(lib);
    return st;
}

void circuit_library_free(CircuitLibrary *lib)
{
    if (lib == NULL)
        return;
    for (uint32_t i = 0; i < lib->n_tomls; i++)
        toml_free(lib->tomls[i]);
    arena_free(lib->arena);
    free(lib);
}

size_t circuit_library_count(const CircuitLibrary *lib)
{
    return lib->n_circuits;
}

const char *circuit_library_arch(const CircuitLibrary *lib, size_t i)
{
    return lib->circuits[i].arch;
}

const Circuit *library_circuit(const CircuitLibrary *lib, size_t i)
{
    return &lib->circuits[i];
}
