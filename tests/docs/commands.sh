#!/bin/sh
# commands.sh SOURCE_DIR BINARY_DIR | --self-test: the commands of the README and the book run as written, and print what
# the page says they print. Those that need more are run by commands_model.sh, commands_server.sh and commands_gpu.sh.
# shellcheck disable=SC2016 # backquotes are Markdown here
set -eu
# shellcheck source-path=SCRIPTDIR source=../support/self_test.sh
. "$(dirname "$0")/../support/self_test.sh"
# shellcheck source-path=SCRIPTDIR source=../support/book.sh
. "$(dirname "$0")/../support/book.sh"

check() { book_run '' "$@"; }

self_test() {
    tmp=$(mktemp -d)
    trap 'rm -rf "$tmp"' EXIT
    cd "$tmp"
    bin=$tmp/bin
    for tree in good bad output order link; do
        mkdir -p "$tree/kernels" "$tree/docs"
        : >"$tree/README.md"
    done
    cat >good/docs/a.md <<'EOF'
```toml file=kernels/new/a.toml
x = 1
```
```sh test
cat kernels/new/a.toml
echo two; echo three
```
```text output
x = 1
...
three
```
```sh
false
```
```sh test model
false
```
EOF
    expect_clean "$tmp/good" "$bin"
    [ ! -e good/kernels/new ] || { echo 'self-test: a page wrote into the checkout' && exit 1; }
    printf '```sh test\ntrue\nfalse\n```\n' >bad/README.md
    expect_fault 'README.md:1: the commands of this block fail' "$tmp/bad" "$bin"
    printf '```sh test\necho one\n```\n```text output\ntwo\n```\n' >output/README.md
    expect_fault 'README.md:4: the block above does not print this line: two' "$tmp/output" "$bin"
    printf '```sh test\necho one; echo two\n```\n```text output\ntwo\none\n```\n' >order/README.md
    expect_fault 'does not print this line: one' "$tmp/order" "$bin"
    printf '```sh file=docs/b.md\n```\n```sh test\ntrue\n```\n' >link/README.md
    expect_fault 'is outside of kernels/' "$tmp/link" "$bin"
    mkdir -p none/docs
    : >none/README.md
    expect_fault 'no block of this kind' "$tmp/none" "$bin"
}

case $1 in
--self-test) self_test ;;
*)
    book_needs_kernels "$2"
    check "$@"
    ;;
esac
