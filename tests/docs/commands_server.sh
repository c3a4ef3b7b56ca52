#!/bin/sh
# commands_server.sh SOURCE_DIR BINARY_DIR | --self-test: the requests of the README and the book, sent to a server that
# serves the default model where the pages say it is. Skipped without the model, without curl, or when the port is taken.
# shellcheck disable=SC2016 # backquotes are Markdown here
set -eu
# shellcheck source-path=SCRIPTDIR source=../support/self_test.sh
. "$(dirname "$0")/../support/self_test.sh"
# shellcheck source-path=SCRIPTDIR source=../support/book.sh
. "$(dirname "$0")/../support/book.sh"

check() { book_run server "$@"; }

skip() {
    echo "SKIP: $*"
    exit 77
}

self_test() {
    tmp=$(mktemp -d)
    trap 'rm -rf "$tmp"' EXIT
    mkdir -p "$tmp/bad/docs"
    printf '```sh test server\nfalse\n```\n' >"$tmp/bad/README.md"
    expect_fault 'the commands of this block fail' "$tmp/bad" "$tmp"
}

case $1 in
--self-test) self_test ;;
*)
    book_needs_kernels "$2"
    url=http://127.0.0.1:8888
    "$2/metrale" circuit digest default >/dev/null 2>&1 ||
        skip 'the default model is not there; ./dev setup fetches it'
    command -v curl >/dev/null 2>&1 || skip 'curl is not installed'
    if curl -s -o /dev/null --max-time 2 "$url/health"; then
        skip 'something serves on port 8888 already'
    fi
    "$2/metrale" serve default >server.log 2>&1 &
    server=$!
    trap 'kill "$server" 2>/dev/null || :' EXIT
    tries=0
    until curl -s -f -o /dev/null "$url/health"; do
        tries=$((tries + 1))
        if [ "$tries" -gt 600 ] || ! kill -0 "$server" 2>/dev/null; then
            echo 'the server does not come up; it says:'
            cat server.log
            exit 1
        fi
        sleep 0.1
    done
    check "$@"
    kill "$server"
    wait "$server"
    ;;
esac
