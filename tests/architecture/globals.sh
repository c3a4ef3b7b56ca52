#!/bin/sh
# globals.sh SOURCE_DIR BINARY_DIR | --self-test: no room keeps mutable state of its own.
#
# The archives' writable sections (.data, .bss, .tdata, .tbss) hold no object. Constant tables with pointers sit in
# .data.rel.ro, which is read-only once the program is linked. Instrumented builds add objects of their own, so the
# check runs on plain ones.
set -eu
# shellcheck source-path=SCRIPTDIR source=../support/self_test.sh
. "$(dirname "$0")/../support/self_test.sh"

check() {
    cache=$2/CMakeCache.txt
    if [ -f "$cache" ] && grep -qE '^(METRALE_SANITIZE:[A-Z]*=.|METRALE_COVERAGE:[A-Z]*=ON)' "$cache"; then
        echo 'SKIP: this build is instrumented'
        exit 77
    fi
    for lib in "$2"/libmetrale_*.a; do
        [ -f "$lib" ] || continue
        objdump -t "$lib" | awk -v lib="$(basename "$lib")" '
            /:     file format/ { object = $1; sub(/:$/, "", object) }
            / O \.(data|bss)(\.[^r][^\t]*)?\t/ || / [^d]  \.(tdata|tbss)/ {
                print lib ": " object ": mutable global " $NF
            }'
    done | awk '{ print } END { exit NR > 0 }'
}

# build_room TREE < C source
build_room() {
    mkdir -p "$1/build"
    cat >"$1/a.c"
    cc -fPIC -c -o "$1/a.o" "$1/a.c"
    ar rcs "$1/build/libmetrale_core.a" "$1/a.o"
}

self_test() {
    build_room good <<'END'
static const char *const names[] = {"a", "b"};
const int table[] = {1, 2};
const char *f(int i);
const char *f(int i) { return names[table[i]]; }
END
    expect_clean good good/build
    echo 'int counter;' | build_room bss
    expect_fault 'mutable global counter' bss bss/build
    echo 'int *f(void); int *f(void) { static int calls = 3; return &calls; }' | build_room data
    expect_fault 'mutable global calls' data data/build
    echo '_Thread_local int last;' | build_room tls
    expect_fault 'mutable global last' tls tls/build
}

case $1 in
--self-test) self_test ;;
*) check "$@" ;;
esac
