#!/bin/sh
# links.sh SOURCE_DIR [BINARY_DIR] | --self-test: what a Markdown page of the project points at is there.
#
#   [text](target)       a relative target is a file or a folder, and behind # a heading of that page
#   `src/core/str.h`     a word in backquotes that begins like a path of the checkout, or of an include, is there; with * ? { }
#                        or < > it is a pattern and not looked at, as are paths inside fenced blocks
#   docs/src/SUMMARY.md  lists every page of the book, once
# shellcheck disable=SC2016 # backquotes are Markdown here
set -eu
# shellcheck source-path=SCRIPTDIR source=../support/self_test.sh
. "$(dirname "$0")/../support/self_test.sh"

# prose PAGE: LINE<tab>text, without fenced blocks
prose() { awk '/^ *```/ { fence = !fence; next } !fence { print NR "\t" $0 }' "$1"; }

# headings PAGE: the anchors that mdBook and GitHub give them
headings() {
    prose "$1" | cut -f 2- | sed -n 's/^#\{1,6\} *//p' | tr '[:upper:]' '[:lower:]' | sed 's/[^a-z0-9 _-]//g; s/ /-/g'
}

# Each link as LINE<tab>TARGET, each path in backquotes as LINE<tab>PATH.
links() { prose "$1" | awk -F '\t' '{
    line = $1; s = $2
    gsub(/`[^`]*`/, "`", s)
    while (match(s, /\]\([^)]*\)/)) {
        print line "\t" substr(s, RSTART + 2, RLENGTH - 3)
        s = substr(s, RSTART + RLENGTH)
    } }'; }
paths() { prose "$1" | awk -F '\t' '{
    line = $1; s = $2
    while (match(s, /`[^`]*`/)) {
        word = substr(s, RSTART + 1, RLENGTH - 2)
        s = substr(s, RSTART + RLENGTH)
        if (word ~ /^(src|kernels|circuits|docs|tests|tools|cmake|fuzz|web|\.ci)\/[A-Za-z0-9_.\/-]*$/)
            print line "\t" word
    } }'; }

page_faults() {
    root=$1 page=$2 dir=$(dirname "$1/$2")
    links "$root/$page" | while IFS='	' read -r line target; do
        case $target in
        http://* | https://* | mailto:*) continue ;;
        esac
        file=${target%%#*}
        anchor=
        case $target in
        *'#'*) anchor=${target#*#} ;;
        esac
        to=$dir/$file
        [ -n "$file" ] || to=$root/$page
        if [ ! -e "$to" ]; then
            echo "$page:$line: the link goes nowhere: $target"
        elif [ -n "$anchor" ] && ! headings "$to" | grep -qxF -- "$anchor"; then
            echo "$page:$line: there is no such heading: $target"
        fi
    done
    paths "$root/$page" | while IFS='	' read -r line path; do
        [ -e "$root/$path" ] || [ -e "$root/src/$path" ] || echo "$page:$line: there is no such path: $path"
    done
}

summary_faults() {
    [ -d "$1/docs/src" ] || return 0
    links "$1/docs/src/SUMMARY.md" | cut -f 2 | sort >"$tmp/listed"
    uniq -d "$tmp/listed" | sed 's/^/docs\/src\/SUMMARY.md: lists twice: /'
    (cd "$1/docs/src" && find . -name '*.md' ! -name SUMMARY.md) | sed 's/^\.\///' | sort | while read -r page; do
        grep -qxF -- "$page" "$tmp/listed" || echo "docs/src/SUMMARY.md: does not list $page"
    done
}

check() {
    {
        (cd "$1" && find . -name '*.md' ! -path './build/*' ! -path './.git/*' ! -path './tests/data/*') |
            sed 's/^\.\///' | sort | while read -r page; do page_faults "$1" "$page"; done
        summary_faults "$1"
    } | awk '{ print } END { exit NR > 0 }'
}

self_test() {
    cd "$tmp"
    plant good/docs/src/SUMMARY.md <<'EOF'
- [A](a.md)
EOF
    plant good/docs/src/a.md <<'EOF'
# One, two: `x`
[up](../../README.md) [itself](#one-two-x) [out](https://example.org/x) `docs/src/a.md` `src/<arch>.toml` `[no](link)`
```sh
[no](link) `src/nothing`
```
EOF
    echo '[b](docs/src/a.md#one-two-x)' | plant good/README.md
    expect_clean good
    echo '[b](docs/b.md)' | plant gone/README.md
    expect_fault 'README.md:1: the link goes nowhere: docs/b.md' gone
    printf '# Here\n\n[b](#there)\n' | plant anchor/README.md
    expect_fault 'README.md:3: there is no such heading: #there' anchor
    echo 'see `src/gone.c`' | plant path/README.md
    expect_fault 'README.md:1: there is no such path: src/gone.c' path
    cp -R good unlisted
    echo 'x' | plant unlisted/docs/src/c.md
    expect_fault 'SUMMARY.md: does not list c.md' unlisted
    cp -R good twice
    echo '- [A](a.md)' >>twice/docs/src/SUMMARY.md
    expect_fault 'lists twice: a.md' twice
}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
case $1 in
--self-test) self_test ;;
*) check "$@" ;;
esac
