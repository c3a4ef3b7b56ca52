# self_test.sh - proves that a check can fail. Sourced by tests/architecture/*.sh, which define check().
#
#   plant DIR/FILE <<...     writes a file of the small tree that the check will read
#   expect_clean ARG...      check ARG... must find nothing
#   expect_fault WORDS ARG...  check ARG... must fail and print WORDS
# shellcheck shell=sh

plant() {
    mkdir -p "$(dirname "$1")"
    cat >"$1"
}

expect_clean() {
    if ! found=$(check "$@" 2>&1); then
        printf 'self-test: a clean tree was refused:\n%s\n' "$found"
        exit 1
    fi
}

expect_fault() {
    words=$1
    shift
    if found=$(check "$@" 2>&1); then
        printf 'self-test: a planted fault went unseen: %s\n' "$words"
        exit 1
    fi
    case $found in
    *"$words"*) echo "seen: $words" ;;
    *)
        printf 'self-test: expected "%s", the check said:\n%s\n' "$words" "$found"
        exit 1
        ;;
    esac
}
