#!/bin/sh
# commands_model.sh SOURCE_DIR BINARY_DIR | --self-test: the commands of the book that need the default model. It is not
# fetched here: without it the test is skipped.
# shellcheck disable=SC2016 # backquotes are Markdown here
set -eu
# shellcheck source-path=SCRIPTDIR source=../support/self_test.sh
. "$(dirname "$0")/../support/self_test.sh"
# shellcheck source-path=SCRIPTDIR source=../support/book.sh
. "$(dirname "$0")/../support/book.sh"

check() { book_run model "$@"; }

self_test() {
    tmp=$(mktemp -d)
    trap 'rm -rf "$tmp"' EXIT
    mkdir -p "$tmp/bad/docs"
    printf '```sh test\nfalse\n```\n```sh test model\ntrue\n```\n' >"$tmp/bad/README.md"
    expect_clean "$tmp/bad" "$tmp"
    printf '```sh test model\nfalse\n```\n' >"$tmp/bad/README.md"
    expect_fault 'the commands of this block fail' "$tmp/bad" "$tmp"
}

case $1 in
--self-test) self_test ;;
*)
    book_needs_kernels "$2"
    if ! "$2/metrale" circuit digest default >/dev/null 2>&1; then
        echo 'SKIP: the default model is not there; ./dev setup fetches it'
        exit 77
    fi
    check "$@"
    ;;
esac
