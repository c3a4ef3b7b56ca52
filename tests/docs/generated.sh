#!/bin/sh
# generated.sh SOURCE_DIR BINARY_DIR | --self-test: the generated parts of the book are what tools/gen_docs.sh makes of
# the code today.
# shellcheck disable=SC2016 # backquotes are Markdown here
set -eu
# shellcheck source-path=SCRIPTDIR source=../support/self_test.sh
. "$(dirname "$0")/../support/self_test.sh"
here=$(cd "$(dirname "$0")/../.." && pwd)

check() { sh "$here/tools/gen_docs.sh" --check "$1" "$2/metrale"; }

self_test() {
    tmp=$(mktemp -d)
    trap 'rm -rf "$tmp"' EXIT
    cd "$tmp"
    plant good/src/cli/levers.h <<'EOF'
#define LEVER_MAP(X) \
    X(A, "a_b", INT, "7", 1, 1 << 10, "", "how (many), of \
it") \
    X(C, "c", CHOICE, "x", 0, 0, "x|y", "which")
int end;
EOF
    plant good/kernels/k/HARDWARE.toml <<'EOF'
[defaults]
a_b = 3   # three
EOF
    plant good/kernels/avx2/common/FAMILIES.toml <<'EOF'
[[family]]
op = "linear"
formats = { weight = "w9", in = "f32" }
numerics = "exact"
[[family.point]]
EOF
    plant good/circuits/new.config.toml <<'EOF'
[match]
model_type = ["newer", "newest"]
EOF
    mkdir -p good/docs/src bin
    printf '#!/bin/sh\n[ $# = 1 ] && echo "  one  the one" && exit\necho "help of $1"\n' >bin/metrale
    chmod +x bin/metrale
    plant good/circuits/new.toml <<'EOF'
# The new one:
# unlike the old.
stem = ["embed"]
EOF
    plant good/src/core/dtype.h <<'EOF'
    X(W9, "w9", 32, 36) \
    X(W3, "w3", 1, 4) \
    X(I32, "i32", 1, 4)
EOF
    plant good/src/weights/ggml_type.c <<'EOF'
    [0] = {"Q9", 32, 36, DT_W9}, [1] = {"OLD", 0, 0, DT_NONE},
EOF
    for part in cli:commands settings:settings settings:defaults models:models models:ops formats:formats \
        formats:numerics; do
        printf '<!-- begin generated: %s -->\nold\n<!-- end generated -->\nprose\n' "${part#*:}" \
            >>"good/docs/src/${part%%:*}.md"
    done
    printf '<!-- begin generated: status -->\n<!-- end generated -->\n' >good/README.md
    expect_fault 'cli.md: is not what the code says' good bin
    sh "$here/tools/gen_docs.sh" good bin/metrale
    expect_clean good bin
    grep -qF 'help of one' good/docs/src/cli.md
    grep -qF 'architectures: `new`;' good/README.md
    grep -qF 'formats of weights: `w9`, in' good/README.md
    grep -qF '| `--a-b` | `METRALE_A_B` | `7` | 1 to 1024 | how (many), of it |' good/docs/src/settings.md
    grep -qF '| `--c` | `METRALE_C` | `x` | x, y | which |' good/docs/src/settings.md
    grep -qF '| `k` | `a_b = 3` |' good/docs/src/settings.md
    grep -qF '| `new` | `newer`, `newest` | none of its own | The new one: unlike the old. |' good/docs/src/models.md
    grep -qF '| `w9` | `f32` | exact |' good/docs/src/formats.md
    grep -qF '| `w9` | 9 | 32 in 36 bytes | `Q9` | `linear` |' good/docs/src/formats.md
    grep -qF '| `w3` | 32 |  |  | none: `--reference` only |' good/docs/src/formats.md
    [ "$(grep -c i32 good/docs/src/formats.md)" -eq 0 ]
    [ "$(grep -c prose good/docs/src/models.md)" -eq 2 ]
    echo 'changed' >>good/src/cli/levers.h
    sed -i 's/"7"/"8"/' good/src/cli/levers.h
    expect_fault 'settings.md: is not what the code says' good bin
}

case $1 in
--self-test) self_test ;;
*) check "$@" ;;
esac
