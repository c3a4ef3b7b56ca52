#!/bin/sh
# names.sh SOURCE_DIR [BINARY_DIR] | --self-test: what the README and the book name is in the code, and the other way round.
#
#   levers         each METRALE_ name in a page is a lever or a name of the build; each lever is in docs/src/settings.md
#   options        each --option in a page belongs to a command, to ./dev, to the build driver, or to a tool named here
#   verbs          each ./dev VERB exists
#   functions      each `name()` in a page is in src/
#   HTTP fields    each field that src/server reads from a request is in docs/src/http.md
#   rooms          each folder of src/ with sources is in the README and in docs/src/layout.md
#   TOML keys      each key that a reader of the kernel tree knows is in docs/src/kernel-tree.md
# shellcheck disable=SC2016 # backquotes are Markdown here
set -eu
# shellcheck source-path=SCRIPTDIR source=../support/self_test.sh
. "$(dirname "$0")/../support/self_test.sh"

# Options of programs that are not ours: cmake, ctest, pip.
foreign='--preset --build --target --no-deps'

# words REGEX: PAGE:LINE<tab>WORD for each match in the pages
words() {
    grep -rnoE -e "$1" README.md docs --include='*.md' 2>/dev/null | sed 's/^\([^:]*:[^:]*\):/\1	/'
}

lever_names() { sed -n 's/.*X([A-Z_]*, "\([a-z_]*\)".*/\1/p' src/cli/levers.h; }

faults() {
    lever_names >"$tmp/levers"
    [ -s "$tmp/levers" ] || echo 'src/cli/levers.h: no lever found'

    # Levers.
    { tr '[:lower:]' '[:upper:]' <"$tmp/levers" | sed 's/^/METRALE_/' && grep -ohE 'METRALE_[A-Z_0-9]+' -r cmake dev src/kernels; } |
        sort -u >"$tmp/known"
    words 'METRALE_[A-Z_0-9]*[A-Z0-9]' | while IFS='	' read -r place word; do
        grep -qxF -- "$word" "$tmp/known" || echo "$place: no lever and no name of the build: $word"
    done
    while read -r lever; do
        grep -qF -- "\`--$(printf '%s' "$lever" | tr _ -)\`" docs/src/settings.md ||
            echo "docs/src/settings.md: does not name the lever $lever"
    done <"$tmp/levers"

    # Options: those in the help texts of the book, which generated.sh holds against the binary.
    {
        awk '/^<!-- begin generated: commands/ { on = 1 } /^<!-- end generated/ { on = 0 } on' docs/src/cli.md
        cat dev src/kbuild/main.c
        echo "$foreign"
    } | grep -oE -e '--[a-z][a-z0-9-]*' | sort -u >"$tmp/known"
    # As words of their own: behind a space or a backquote.
    words '[ `(]--[a-z][a-z0-9-]*' | sed 's/	[ `(]/	/' | while IFS='	' read -r place word; do
        grep -qxF -- "$word" "$tmp/known" || echo "$place: no such option: $word"
    done

    # Verbs of ./dev.
    sed -n 's/^\([a-z |-]*\)) .*/\1/p; s/^\([a-z |-]*\))$/\1/p' dev | tr -s '| ' '\n' | sort -u >"$tmp/known"
    words '\./dev [a-z]+' | while IFS='	' read -r place word; do
        grep -qxF -- "${word#./dev }" "$tmp/known" || echo "$place: no such verb: $word"
    done

    # Functions.
    find src kernels -name '*.[ch]' -exec cat {} + >"$tmp/source"
    words '`[a-z][a-z0-9_]*\(\)`' | tr -d '`()' | while IFS='	' read -r place word; do
        grep -qwF -- "$word" "$tmp/source" || echo "$place: no such function: $word"
    done

    # Fields of requests.
    if [ -d src/server ]; then
        {
            grep -ohE '(params_(get|bool|int)\([a-z]+, "[a-z_]+"|FloatField|\{"[a-z_]+", "(from|above))' -r src/server ||
                :
        } | sed -n 's/.*"\([a-z_]*\)", .*/\1/p; s/.*, "\([a-z_]*\)"$/\1/p' | sort -u | while read -r field; do
            grep -qF -- "\`$field\`" docs/src/http.md || echo "docs/src/http.md: does not name the request's field $field"
        done
    fi

    # Rooms.
    for source in src/*/*.[ch]; do dirname "$source"; done | sort -u | while read -r room; do
        grep -qF -- "\`$room\`" README.md || echo "README.md: does not name the room $room"
        grep -qE -- "\`(src/)?${room#src/}\`" docs/src/layout.md || echo "docs/src/layout.md: does not name the room $room"
    done

    # Keys of the kernel tree: the tables of (key, kinds) in the reader, and of the families' reader.
    {
        grep -ohE '\{"[a-z_]+", *K[(_]' src/closure/manifest.c | sed 's/.*"\(.*\)".*/\1/'
        grep -ohE 'keys\[\] = \{[^}]*' src/circuit/families.c | grep -oE '"[a-z_]+"' | tr -d '"'
    } | sort -u | while read -r key; do
        grep -qE -- "(^|[^A-Za-z0-9_])$key([^A-Za-z0-9_]|\$)" docs/src/kernel-tree.md ||
            echo "docs/src/kernel-tree.md: does not name the key $key"
    done
}

check() { (cd "$1" && faults) | awk '{ print } END { exit NR > 0 }'; }

self_test() {
    cd "$tmp"
    plant good/src/cli/levers.h <<'EOF'
    X(KV_DTYPE, "kv_dtype", CHOICE, "bf16", 0, 0, "bf16|f32", "format")
EOF
    echo 'Status model_step(Model *m);' | plant good/src/model/model.h
    echo '{"tree", 1}' | plant good/src/kbuild/main.c
    echo 'st = params_int(body, "top_k", -1, 9, &k, e);' | plant good/src/server/params.c
    printf '{"arch", K(TOML_STRING), 0, true},\n{"memory", K_NUMBER, 0, false},\n' | plant good/src/closure/manifest.c
    echo 'keys[] = {"entry", NULL};' | plant good/src/circuit/families.c
    echo 'METRALE_SKIP_BUILD' | plant good/cmake/kernels.cmake
    mkdir -p good/src/kernels good/kernels
    printf 'serve | bench) x ;;\nlint) y ;;\n' | plant good/dev
    echo '`src/cli` `model` `src/server` `closure` `circuit` `kbuild`' | plant good/docs/src/layout.md
    echo '`src/cli` `src/model` `src/server` `src/closure` `src/circuit` `src/kbuild` `METRALE_KV_DTYPE` `METRALE_SKIP_BUILD` `./dev bench` `--kv-dtype` `model_step()`' | plant good/README.md
    printf '<!-- begin generated: commands -->\n  --kv-dtype=X\n<!-- end generated -->\n' | plant good/docs/src/cli.md
    echo '`--kv-dtype`' | plant good/docs/src/settings.md
    echo '`top_k`' | plant good/docs/src/http.md
    echo 'arch, memory, entry' | plant good/docs/src/kernel-tree.md
    expect_clean good
    for fault in 'no lever and no name of the build: METRALE_NEW:METRALE_NEW' 'no such option: --no-such:a --no-such b' \
        'no such verb: ./dev fly:./dev fly' 'no such function: fly:`fly()`'; do
        rm -rf bad
        cp -R good bad
        printf '%s\n' "${fault##*:}" >>bad/docs/src/http.md
        expect_fault "${fault%:*}" bad
    done
    rm -rf bad
    cp -R good bad
    : | plant bad/src/attic/a.c
    expect_fault 'README.md: does not name the room src/attic' bad
    expect_fault 'layout.md: does not name the room src/attic' bad
    for page in 'settings:does not name the lever kv_dtype' 'http:does not name the request'\''s field top_k' \
        'kernel-tree:does not name the key memory'; do
        rm -rf bad
        cp -R good bad
        echo 'entry arch' >"bad/docs/src/${page%%:*}.md"
        expect_fault "${page#*:}" bad
    done
}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
case $1 in
--self-test) self_test ;;
*) check "$@" ;;
esac
