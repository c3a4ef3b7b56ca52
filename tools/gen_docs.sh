#!/bin/sh
# gen_docs.sh [--check] ROOT METRALE: fills in the parts of the book that the code knows better.
#
# A generated part stands between the lines `<!-- begin generated: NAME -->` and `<!-- end generated -->` of a page:
#
#   status     README.md             architectures by circuits/, formats of weights by FAMILIES.toml
#   commands   docs/src/cli.md       what METRALE says of itself with --help
#   settings   docs/src/settings.md  the table of src/cli/levers.h
#   defaults   docs/src/settings.md  [defaults] of each kernels/<hw>/HARDWARE.toml
#   models     docs/src/models.md    circuits/<arch>.config.toml [match], and what circuits/<arch>.toml says of itself
#   formats    docs/src/formats.md   the weight formats of src/core/dtype.h, and which ops have families for them
#   numerics   docs/src/formats.md   the families of the op linear on the baseline CPU class
#   ops        docs/src/models.md    ops that the families of each FAMILIES.toml compute
#
# Without --check the pages are rewritten in place. With it nothing is written: a page that would change is named, and the
# exit status is 1.
# shellcheck disable=SC2016,SC2317 # backquotes are Markdown; fill calls the gen_ functions by name
set -eu

check=
if [ "${1-}" = --check ]; then
    check=yes
    shift
fi
[ $# -eq 2 ] || { echo 'usage: gen_docs.sh [--check] ROOT METRALE' >&2 && exit 2; }
root=$1
tools=$(dirname "$0")
metrale=$2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# Help texts are laid out for 79 columns unless this says otherwise.
unset ARGP_HELP_FMT

gen_commands() {
    printf '```text\n'
    "$metrale" --help
    printf '```\n'
    "$metrale" --help | sed -n 's/^  \([a-z][a-z]*\)  *[a-z].*/\1/p' | while read -r name; do
        printf '\n## metrale %s\n\n```text\n' "$name"
        # Spaces at the end of a line would be lost in an editor.
        "$metrale" "$name" --help | sed 's/[ 	]*$//'
        printf '```\n'
    done
}

# One line for each row of LEVER_MAP: name, kind, built-in value, least, most, choices, help; separated by tabs.
levers() {
    awk '
        /define LEVER_MAP/ { inside = 1; next }
        inside { sub(/\\$/, ""); text = text $0 }
        inside && !/X\(|"/ { exit }
        END {
            n = split(text, row, /X\(/)
            for (i = 2; i <= n; i++) {
                s = row[i]
                count = 0
                while (s != "" && count < 8) {
                    sub(/^[ \t]*,?[ \t]*/, "", s)
                    if (substr(s, 1, 1) == "\"") {
                        end = index(substr(s, 2), "\"")
                        field[++count] = substr(s, 2, end - 1)
                        s = substr(s, end + 2)
                    } else {
                        match(s, /[,)]/)
                        field[++count] = substr(s, 1, RSTART - 1)
                        s = substr(s, RSTART)
                    }
                }
                line = field[2]
                for (j = 3; j <= 8; j++)
                    line = line "\t" (field[j] == "" ? "-" : field[j])
                print line
            }
        }' "$root/src/cli/levers.h"
}

gen_settings() {
    echo '| Flag | Variable | Built in | Values | What it sets |'
    echo '|---|---|---|---|---|'
    levers | awk -F '\t' '
        function number(s,   p) {
            if (split(s, p, / *<< */) == 2)
                return sprintf("%d", p[1] * 2 ^ p[2])
            return s
        }
        {
            flag = $1
            gsub(/_/, "-", flag)
            values = $2 == "INT" ? number($4) " to " number($5) : $2 == "BOOL" ? "true, false" : \
                $2 == "CHOICE" ? $6 : "text"
            gsub(/\|/, ", ", values)
            printf "| `--%s` | `METRALE_%s` | %s | %s | %s |\n", flag, toupper($1), $3 == "-" ? "" : "`" $3 "`", values, $7
        }'
}

gen_defaults() {
    echo '| Class | Sets |'
    echo '|---|---|'
    for file in "$root"/kernels/*/HARDWARE.toml; do
        class=$(basename "$(dirname "$file")")
        sets=$(awk '
            /^\[/ { inside = $0 ~ /^\[defaults\]/; next }
            inside && /=/ {
                sub(/[ \t]*#.*/, "")
                gsub(/"/, "")
                out = out (out == "" ? "" : ", ") "`" $0 "`"
            }
            END { print out }' "$file")
        parent=$(sed -n 's/^inherits *= *"\(.*\)".*/\1/p' "$file")
        [ -n "$sets" ] || sets=${parent:+as \`$parent\`}
        echo "| \`$class\` | ${sets:-nothing} |"
    done
}

# list KEY FILE: the strings of KEY = ["a", "b"] as `a`, `b`
list() {
    sed -n "s/^$1 *= *\[\(.*\)\].*/\1/p" "$2" | head -n 1 | sed 's/"/`/g'
}

# about FILE: the comment at its top, on one line
about() {
    sed -n '/^#/!q; s/^# *//p' "$1" | tr '\n' ' ' | sed 's/ *$//; s/|/\\|/g'
}

gen_models() {
    echo '| Circuit | `model_type` in config.json | `general.architecture` in GGUF | What it is |'
    echo '|---|---|---|---|'
    for file in "$root"/circuits/*.config.toml; do
        arch=$(basename "$file" .config.toml)
        gguf=$(list gguf_arch "$file")
        echo "| \`$arch\` | $(list model_type "$file") | ${gguf:-none of its own} | $(about "$root/circuits/$arch.toml") |"
    done
}

# families OP FILE: one line for each family of the op: format of its weight, of its input, numerics.
families() {
    awk -f "$tools/toml_each.awk" "$2" | awk '
        function field(key,   s) {
            if (!match($0, "(^|[{,; ])" key " *= *\"[^\"]*\""))
                return ""
            s = substr($0, RSTART, RLENGTH)
            sub(/"$/, "", s)
            sub(/.*"/, "", s)
            return s
        }
        /^\[\[family\]\]/ { if (op == want) print weight "\t" input "\t" numerics; op = weight = input = numerics = "" }
        /^op *=/ { op = field("op") }
        /^formats *=/ { weight = field("weight"); input = field("in") }
        /^numerics *=/ { numerics = field("numerics") }
        END { if (op == want) print weight "\t" input "\t" numerics }' want="$1"
}

# Integers, bytes, scales and activations are no formats of weights by themselves.
gen_formats() {
    echo '| Format | Bits a weight | Block | GGUF | Ops with a family on `avx2` |'
    echo '|---|---|---|---|---|'
    for op in linear expert_linear lm_head embed; do
        families "$op" "$root/kernels/avx2/common/FAMILIES.toml" | cut -f 1 | sort -u | sed "s/\$/	\`$op\`/"
    done >"$tmp/ops"
    grep -oE '"[A-Z0-9_]+", [0-9]+, [0-9]+, DT_[A-Z0-9_]+' "$root/src/weights/ggml_type.c" |
        sed 's/^"\([^"]*\)".* DT_\(.*\)/\2	\1/' >"$tmp/gguf"
    sed -n 's/^ *X(\([A-Z0-9_]*\), "\([^"]*\)", \([0-9]*\), \([0-9]*\)).*/\1	\2	\3	\4/p' "$root/src/core/dtype.h" |
        awk -F '\t' -v ops="$tmp/ops" -v gguf="$tmp/gguf" '
            BEGIN {
                while ((getline line < ops) > 0) {
                    split(line, f, "\t")
                    has[f[1]] = has[f[1]] (has[f[1]] == "" ? "" : " ") f[2]
                }
                while ((getline line < gguf) > 0) {
                    split(line, f, "\t")
                    type[f[1]] = f[2]
                }
            }
            $2 ~ /^[iue][0-9]/ { next }
            {
                printf "| `%s` | %.4g | %s | %s | %s |\n", $2, 8 * $4 / $3, $3 == 1 ? "" : $3 " in " $4 " bytes",
                    $1 in type ? "`" type[$1] "`" : "", $2 in has ? has[$2] : "none: `--reference` only"
            }'
}

gen_numerics() {
    echo '| Weight format | Activations that enter | What is computed |'
    echo '|---|---|---|'
    families linear "$root/kernels/avx2/common/FAMILIES.toml" |
        awk -F '\t' '{ printf "| `%s` | %s | %s |\n", $1, $2 == "" ? "the class'"'"'s" : "`" $2 "`", $3 }'
}

gen_ops() {
    echo '| File | Ops with a family |'
    echo '|---|---|'
    find "$root/kernels" -name FAMILIES.toml | sort | while read -r file; do
        ops=$(sed -n 's/^op *= *"\(.*\)".*/`\1`/p' "$file" | sort -u | tr '\n' ' ' | sed 's/ $//')
        echo "| \`${file#"$root"/}\` | $ops |"
    done
}

gen_status() {
    echo "- architectures: $(for file in "$root"/circuits/*.config.toml; do basename "$file" .config.toml; done |
        sed 's/.*/`&`/' | tr '\n' ' ' | sed 's/ $//; s/ /, /g');"
    echo "- formats of weights: $(families linear "$root/kernels/avx2/common/FAMILIES.toml" | cut -f 1 | sort -u |
        sed 's/.*/`&`/' | tr '\n' ' ' | sed 's/ $//; s/ /, /g'), in safetensors where it has them, and in GGUF;"
}

# fill PAGE NAME...: the page with its parts made anew.
fill() {
    page=$root/$1
    shift
    cp "$page" "$tmp/page"
    for name; do
        grep -q "^<!-- begin generated: $name -->\$" "$page" ||
            { echo "$page: has no generated part '$name'" >&2 && exit 1; }
        "gen_$name" >"$tmp/part"
        awk -v part="$tmp/part" -v begin="<!-- begin generated: $name -->" '
            $0 == begin { print; while ((getline line < part) > 0) print line; skip = 1; next }
            skip && $0 == "<!-- end generated -->" { skip = 0 }
            !skip' "$tmp/page" >"$tmp/next"
        mv "$tmp/next" "$tmp/page"
    done
    if cmp -s "$tmp/page" "$page"; then
        return
    elif [ -n "$check" ]; then
        diff -u "$page" "$tmp/page" >&2 || :
        echo "$page: is not what the code says; run tools/gen_docs.sh ROOT METRALE" >&2
        stale=1
    else
        cat "$tmp/page" >"$page"
    fi
}

stale=0
fill README.md status
fill docs/src/cli.md commands
fill docs/src/settings.md settings defaults
fill docs/src/models.md models ops
fill docs/src/formats.md formats numerics
exit "$stale"
