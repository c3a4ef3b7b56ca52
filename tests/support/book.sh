# book.sh - runs the examples of the README and the book as they stand. Sourced by tests/docs/commands*.sh.
#
# In a page, what stands behind ``` says what a block is:
#
#   ```sh test            commands that must succeed, run by sh -eu
#   ```sh test KIND       the same, for a script that has what KIND needs (model, server, gpu)
#   ```text output        lines that the block before must have printed; a line "..." stands for anything
#   ```LANG file=PATH     a file: it is written before the blocks behind it run
#
# The blocks of a page run in order, in one scratch directory that looks like the checkout: kernels/ and circuits/ are copies
# that a page may change, the rest are links. The binaries of the build come first on PATH.
# shellcheck shell=sh

# book_split PAGE DIR: each block becomes DIR/NNN.TYPE (sh, output, file), with DIR/NNN.info: line and words.
book_split() {
    awk -v dir="$2" '
        /^```/ && !inside {
            inside = 1
            info = $0
            sub(/^```/, "", info)
            type = ""
            if (info ~ /^sh test( [a-z]+)?$/)
                type = "sh"
            else if (info == "text output")
                type = "output"
            else if (info ~ /^[a-z]+ file=[^ ]+$/)
                type = "file"
            if (type != "") {
                out = sprintf("%s/%03d.%s", dir, ++n, type)
                printf "%d %s\n", NR, info > sprintf("%s/%03d.info", dir, n)
                printf "" > out
            }
            next
        }
        /^```/ { inside = 0; if (type != "") close(out); type = ""; next }
        inside && type != "" { print > out }' "$1"
}

# book_has EXPECTED ACTUAL: every line of EXPECTED, in order, among the lines of ACTUAL; blanks at an end do not count.
# Prints the first that is missing.
book_has() {
    awk '
        { sub(/[ \t]+$/, "") }
        NR == FNR { if ($0 != "..." && $0 != "") want[++n] = $0; next }
        i < n && $0 == want[i + 1] { i++ }
        END { if (i < n) { print want[i + 1]; exit 1 } }' "$1" "$2"
}

# book_scratch ROOT DIR
book_scratch() {
    mkdir -p "$2"
    for entry in "$1"/* "$1"/.ci; do
        name=$(basename "$entry")
        case $name in
        build) ;;
        kernels | circuits) cp -R "$entry" "$2/$name" ;;
        *) ln -s "$entry" "$2/$name" ;;
        esac
    done
}

# book_page ROOT PAGE KIND TMP: runs the blocks of KIND ("" for plain ones). Counts them in $book_ran.
book_page() {
    name=$(printf '%s' "${2#"$1"/}" | tr / _)
    blocks=$4/$name.blocks
    mkdir -p "$blocks"
    book_split "$2" "$blocks"
    wanted="sh test${3:+ $3}"
    # A page without a block of this kind needs no directory.
    grep -q "^[0-9]* $wanted\$" "$blocks"/*.info 2>/dev/null || return 0
    work=$4/$name.work
    book_scratch "$1" "$work"
    last=
    for info in "$blocks"/*.info; do
        number=${info%.info}
        line=$(cut -d ' ' -f 1 "$info")
        what=$(cut -d ' ' -f 2- "$info")
        if [ "$what" = "$wanted" ]; then
            book_ran=$((book_ran + 1))
            last=$number.out
            if ! (cd "$work" && sh -eu "$number.sh" >"$last" 2>"$number.err"); then
                echo "${2#"$1"/}:$line: the commands of this block fail:"
                cat "$number.sh" "$last" "$number.err"
                return 1
            fi
        elif [ "$what" = 'text output' ]; then
            if [ -n "$last" ] && ! missing=$(book_has "$number.output" "$last"); then
                echo "${2#"$1"/}:$line: the block above does not print this line: $missing"
                echo 'It prints:'
                cat "$last"
                return 1
            fi
            last=
        else
            last=
            case $what in
            *' file='*)
                path=$work/${what##* file=}
                mkdir -p "$(dirname "$path")"
                # Never through a link into the checkout.
                case $(cd "$(dirname "$path")" && pwd -P) in
                "$(cd "$work" && pwd -P)"/*) cp "$number.file" "$path" ;;
                *)
                    echo "${2#"$1"/}:$line: $path is outside of kernels/, circuits/ and new directories"
                    return 1
                    ;;
                esac
                ;;
            esac
        fi
    done
}

# book_run KIND ROOT BINARY_DIR
book_run() {
    PATH=$3:$PATH
    export PATH
    unset METRALE_TARGET_HW METRALE_TARGET_MODEL METRALE_TARGET_QUANT METRALE_SKIP_BUILD METRALE_NVCC
    book_ran=0
    scratch=$(mktemp -d)
    # Names below the root hold no blanks; the root may.
    for page in README.md $(cd "$2" && find docs -name '*.md' 2>/dev/null | sort); do
        if ! book_page "$2" "$2/$page" "$1" "$scratch"; then
            rm -rf "$scratch"
            return 1
        fi
    done
    rm -rf "$scratch"
    [ "$book_ran" -gt 0 ] || { echo "no block of this kind ('$1') in the README and docs/" && return 1; }
    echo "$book_ran blocks ran as written"
}

# book_needs_kernels BINARY_DIR: leaves with 77 when the binary holds no kernels (METRALE_SKIP_BUILD).
book_needs_kernels() {
    case $("$1/metrale" version) in
    *': 0 kernel targets'*)
        echo 'SKIP: this build has no kernels'
        exit 77
        ;;
    esac
}
