#!/bin/sh
# commands_gpu.sh SOURCE_DIR BINARY_DIR | --self-test: the commands of the book that speak of a GPU class. They run nothing
# on a device, but the class must be in the binary: skipped where the build had no CUDA compiler.
# shellcheck disable=SC2016 # backquotes are Markdown here
set -eu
# shellcheck source-path=SCRIPTDIR source=../support/self_test.sh
. "$(dirname "$0")/../support/self_test.sh"
# shellcheck source-path=SCRIPTDIR source=../support/book.sh
. "$(dirname "$0")/../support/book.sh"

check() { book_run gpu "$@"; }

self_test() {
    tmp=$(mktemp -d)
    trap 'rm -rf "$tmp"' EXIT
    mkdir -p "$tmp/bad/docs"
    printf '```sh test gpu\nfalse\n```\n' >"$tmp/bad/README.md"
    expect_fault 'the commands of this block fail' "$tmp/bad" "$tmp"
}

case $1 in
--self-test) self_test ;;
*)
    book_needs_kernels "$2"
    if ! "$2/metrale" version | grep -q '^  hopper/'; then
        echo 'SKIP: the GPU classes are not in this binary; ./dev setup --gpu fetches the compiler'
        exit 77
    fi
    check "$@"
    ;;
esac
