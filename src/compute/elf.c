/* elf.c - the symbol table of an ELF64 little-endian file, read with every offset checked.
 *
 * The layout is that of the System V ABI, chapter 4: header, section headers, a SHT_SYMTAB section whose sh_link is its
 * string table. Structures are copied out, since nothing says that their offsets are aligned. */
#include "compute/elf.h"
#include <elf.h>
#include <string.h>

typedef struct View {
    const unsigned char *p;
    size_t len;
} View;

static bool part(View v, uint64_t off, uint64_t size, View *out)
{
    if (off > v.len || size > v.len - off)
        return false;
    *out = (View){v.p + off, (size_t)size};
    return true;
}

static bool copy_out(View v, uint64_t off, void *to, size_t size)
{
    View w;
    if (!part(v, off, size, &w))
        return false;
    memcpy(to, w.p, size);
    return true;
}

static bool section_at(View file, const Elf64_Ehdr *h, uint64_t i, Elf64_Shdr *out)
{
    if (i >= h->e_shnum || h->e_shoff > file.len)
        return false;
    return copy_out(file, h->e_shoff + i * sizeof *out, out, sizeof *out);
}

/* The NUL-terminated string at off of a string table, or NULL. */
static const char *string_at(View strings, uint64_t off)
{
    if (off >= strings.len || !memchr(strings.p + off, 0, strings.len - off))
        return NULL;
    return (const char *)strings.p + off;
}

Status elf_functions(const void *bytes, size_t len, const char *name, void (*seen)(void *ctx, const char *symbol),
                     void *ctx, Err *err)
{
    View file = {bytes, len}, table, strings;
    Elf64_Ehdr h;
    if (!copy_out(file, 0, &h, sizeof h) || memcmp(h.e_ident, ELFMAG, SELFMAG) || h.e_ident[EI_CLASS] != ELFCLASS64 ||
        h.e_ident[EI_DATA] != ELFDATA2LSB || h.e_shentsize != sizeof(Elf64_Shdr))
        return err_set(err, ST_FORMAT, "%s is no 64-bit ELF file: remove it, so that it is compiled again", name);
    for (uint64_t i = 0; i < h.e_shnum; i++) {
        Elf64_Shdr sh, str;
        if (!section_at(file, &h, i, &sh))
            return err_set(err, ST_FORMAT,
                           "%s: section %llu lies outside the file: remove it, so that it is compiled again", name,
                           (unsigned long long)i);
        if (sh.sh_type != SHT_SYMTAB)
            continue;
        if (!section_at(file, &h, sh.sh_link, &str) || !part(file, sh.sh_offset, sh.sh_size, &table) ||
            !part(file, str.sh_offset, str.sh_size, &strings))
            return err_set(err, ST_FORMAT,
                           "%s: the symbol table lies outside the file: remove it, so that it is compiled again", name);
        for (uint64_t j = 0; j < table.len / sizeof(Elf64_Sym); j++) {
            Elf64_Sym sym;
            const char *symbol;
            copy_out(table, j * sizeof sym, &sym, sizeof sym);
            if (ELF64_ST_TYPE(sym.st_info) != STT_FUNC || ELF64_ST_BIND(sym.st_info) == STB_LOCAL ||
                sym.st_shndx == SHN_UNDEF)
                continue;
            symbol = string_at(strings, sym.st_name);
            if (!symbol)
                return err_set(err, ST_FORMAT,
                               "%s: a symbol's name lies outside the file: remove it, so that it is compiled again",
                               name);
            seen(ctx, symbol);
        }
    }
    return ST_OK;
}

typedef struct Wanted {
    const char *symbol;
    bool has;
} Wanted;

static void compare(void *ctx, const char *symbol)
{
    Wanted *w = ctx;
    w->has |= !strcmp(w->symbol, symbol);
}

Status elf_has_function(const void *bytes, size_t len, const char *name, const char *symbol, bool *has, Err *err)
{
    Wanted w = {symbol, false};
    Status st = elf_functions(bytes, len, name, compare, &w, err);
    *has = w.has;
    return st;
}
