/* tree.h - a small kernel tree on disk for the tests of the rooms that read one. All paths are relative to the test's own
 * working directory; each test begins with tree_plant(), which clears what the one before left. */
#ifndef METRALE_TESTS_SUPPORT_TREE_H
#define METRALE_TESTS_SUPPORT_TREE_H
#include "core/file.h"
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define TREE "tree"

static inline int tree_unlink(const char *path, const struct stat *sb, int kind, struct FTW *ftw)
{
    (void)sb;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static inline void tree_clear(const char *dir)
{
    nftw(dir, tree_unlink, 16, FTW_DEPTH | FTW_PHYS);
}

/* Writes dir/path with the directories above it. */
static inline void put_in(const char *dir, const char *path, const char *text)
{
    char full[512], *slash;
    Err err;
    snprintf(full, sizeof full, "%s/%s", dir, path);
    slash = strrchr(full, '/');
    *slash = '\0';
    assert_int_equal(dir_make(full, &err), ST_OK);
    *slash = '/';
    assert_int_equal(file_write(full, text, strlen(text), &err), ST_OK);
}

static inline void put(const char *path, const char *text)
{
    put_in(TREE, path, text);
}

static inline void drop(const char *path)
{
    char full[512];
    snprintf(full, sizeof full, TREE "/%s", path);
    tree_clear(full);
}

#define MODEL_TOML "[model]\nname = \"toy\"\n[match]\nmodel_type = \"toy\"\n"
#define HARDWARE_TOML(name, more)                                                                                      \
    "[hardware]\nname = \"" name "\"\nvendor = \"cpu\"\narch = \"" name                                                \
    "\"\nbandwidth = 10\nactivation = \"f32\"\n" more
#define SCALE_C                                                                                                        \
    "#include \"kernel_abi.h\"\n#include \"factor.h\"\nKERNEL(scale)\n{\n    PTR(0, float)[b->x] *= FACTOR;\n}\n"
#define FACTOR_H "#define FACTOR 2.0f\n"
#define FAMILIES "[[family]]\nid = \"scale\"\n[[family.point]]\nentry = \"scale\"\nmodule = \"scale\"\n"

/* Two CPU classes, `low` and `high`, which inherits it; one model `toy` with the quantization `any`; one family. No faults.
 *
 *   low/HARDWARE.toml  low/common/{KERNEL,FAMILIES}.toml  low/common/{scale.c,factor.h}  low/toy/MODEL.toml  low/toy/any/KERNEL.toml
 *   high/HARDWARE.toml */
static inline void tree_plant(void)
{
    tree_clear(TREE);
    put("low/HARDWARE.toml", HARDWARE_TOML("low", "[build]\nflags = [\"-std=c17\", \"-O1\"]\n"));
    put("low/common/KERNEL.toml", "# nothing\n");
    put("low/common/FAMILIES.toml", FAMILIES);
    put("low/common/scale.c", SCALE_C);
    put("low/common/factor.h", FACTOR_H);
    put("low/toy/MODEL.toml", MODEL_TOML);
    put("low/toy/any/KERNEL.toml", "# nothing\n");
    put("high/HARDWARE.toml", HARDWARE_TOML("high", "inherits = \"low\"\n"));
}
#endif
