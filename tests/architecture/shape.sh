#!/bin/sh
# shape.sh SOURCE_DIR [BINARY_DIR] | --self-test: files stay short, and each room says what it is.
#
# A source has fewer than 1,200 lines. Each folder at the top, and each room of src/, has a README.md.
set -eu
# shellcheck source-path=SCRIPTDIR source=../support/self_test.sh
. "$(dirname "$0")/../support/self_test.sh"

check() {
    (
        cd "$1"
        {
            find src tests kernels tools fuzz -type f \( -name '*.c' -o -name '*.h' -o -name '*.cc' \
                -o -name '*.cu' -o -name '*.cuh' -o -name '*.sh' -o -name '*.py' \) 2>/dev/null |
                sort | xargs wc -l /dev/null | awk '$2 != "total" && $1 >= 1200 {
                    print $2 ": has " $1 " lines; a source stays under 1200: split it by concern" }'
            for dir in */ src/*/; do
                case $dir in
                build/ | 'src/*/') continue ;;
                esac
                # Git knows no empty folders.
                [ -f "${dir}README.md" ] || [ -z "$(find "$dir" -type f | head -n 1)" ] ||
                    echo "$dir: has no README.md that says what the folder is for"
            done
        } | awk '{ print } END { exit NR > 0 }'
    )
}

self_test() {
    for tree in good long room; do
        for dir in src src/core; do
            : | plant "$tree/$dir/README.md"
        done
    done
    yes 'int x;' | head -n 1199 | plant good/src/core/a.c
    : | plant good/build/a.o
    mkdir -p good/web
    expect_clean good
    yes 'int x;' | head -n 1200 | plant long/src/core/a.c
    expect_fault 'src/core/a.c: has 1200 lines' long
    : | plant room/src/model/a.h
    expect_fault 'src/model/: has no README.md' room
    : | plant top/docs/intro.md
    expect_fault 'docs/: has no README.md' top
}

case $1 in
--self-test) self_test ;;
*) check "$@" ;;
esac
