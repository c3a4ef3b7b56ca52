#!/bin/sh
# names.sh SOURCE_DIR [BINARY_DIR] | --self-test: C code knows no model and no kernel by name.
#
# The names come from the tree: each circuits/<arch>.toml gives an architecture, each `entry = "..."` of a FAMILIES.toml
# gives a kernel. None may stand in the code of src/, as an identifier, a part of one, or in a string. Comments may
# use them as examples. An entry that is called like its op (rms_norm) is not told from it: ops are the signature, which is C.
set -eu
here=$(dirname "$0")
# shellcheck source-path=SCRIPTDIR source=../support/self_test.sh
. "$(dirname "$0")/../support/self_test.sh"

architectures() {
    for file in "$1"/circuits/*.toml; do
        [ -f "$file" ] || continue
        name=$(basename "$file" .toml)
        case $name in
        *.*) ;; # <arch>.config.toml, <arch>.weights.toml
        *) echo "$name" ;;
        esac
    done
}

# values ROOT KEY: each string that a FAMILIES.toml gives to KEY
values() {
    find "$1/kernels" -name FAMILIES.toml -exec awk -f "$here/../../tools/toml_each.awk" {} + 2>/dev/null |
        sed -n 's/^\([^#]*[{,; \t]\)\{0,1\}'"$2"'[ \t]*=[ \t]*"\([A-Za-z0-9_]*\)".*/\2/p' | sort -u
}

entries() {
    values "$1" op >"$tmp/op"
    values "$1" entry | grep -vxFf "$tmp/op" || :
}

# code FILE: without comments, each line behind FILE:LINE:
code() {
    # The preprocessor takes comments out and keeps lines; directives stay.
    cc -fpreprocessed -dD -E -x c "$1" 2>/dev/null | awk -v file="$2" '
        /^# [0-9]+ "/ { line = $2 - 1; next }
        { line++ }
        /[^ \t]/ { print file ":" line ":" $0 }'
}

check() {
    architectures "$1" >"$tmp/arch"
    entries "$1" >"$tmp/entry"
    [ -s "$tmp/arch" ] || { echo "no circuits/<arch>.toml in $1" && return 1; }
    # A name counts where no letter or digit touches it: llama_rope and "llama" do, llama3 is another word.
    sed 's/.*/(^|[^A-Za-z0-9])&([^A-Za-z0-9]|$)/' "$tmp/arch" >"$tmp/pattern"
    sed 's/.*/(^|[^A-Za-z0-9_])&([^A-Za-z0-9_]|$)/' "$tmp/entry" >>"$tmp/pattern"
    (cd "$1" && find src -type f \( -name '*.c' -o -name '*.h' -o -name '*.cc' \) | sort) | while read -r file; do
        code "$1/$file" "$file"
    done >"$tmp/code"
    if grep -iEf "$tmp/pattern" "$tmp/code" | sed 's/^\([^:]*:[^:]*\):/\1: names a model or a kernel; that belongs into TOML:/' |
        grep .; then
        return 1
    fi
}

self_test() {
    for tree in good arch part entry; do
        for file in llama.toml llama.config.toml llama.weights.toml; do
            : | plant "$tree/circuits/$file"
        done
        plant "$tree/kernels/avx2/common/FAMILIES.toml" <<'END'
[[family]]
id = "linear_w4"
op = "linear"
[[family.point]]
entry = "linear_w4_rows8" ; module = "linear_w4"
[[family]]
op    = "rope"
[[family.point]]
entry = "rope"
END
    done
    plant good/src/model/a.c <<'END'
/* circuits/llama.toml is an example,
 * linear_w4_rows8 too */
int llama3; // llama
const char *x = "linear_w4", *y = "rope";
END
    expect_clean good
    plant arch/src/model/a.c <<'END'
/* one */
int x;
const char *y = "llama";
END
    expect_fault 'src/model/a.c:3: names a model or a kernel' arch
    plant part/src/model/a.h <<'END'
int Llama_rope(void);
END
    expect_fault 'src/model/a.h:1: names a model or a kernel' part
    plant entry/src/gpu/a.c <<'END'
#define K "linear_w4_rows8"
END
    expect_fault 'src/gpu/a.c:1: names a model or a kernel' entry
    mkdir -p bare/src
    expect_fault 'no circuits/<arch>.toml' bare
}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
case $1 in
--self-test) self_test ;;
*) check "$@" ;;
esac
