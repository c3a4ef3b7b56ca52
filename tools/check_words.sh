#!/bin/sh
# check_words.sh ROOT: words that no file of the project may hold.
#
#   marks of unfinished work     it is finished, or it is an issue
#   absolute paths of a machine  a checkout works at any path
#   banned C functions           no bound, hidden state, or an error that cannot be seen; the line says what to use
#   the environment              read in src/cli alone, which passes values down
set -eu
cd "$1"
faults=0

# forbid WHY PATTERN PATH...: each line that holds the extended regular expression PATTERN is a fault.
forbid() {
    why=$1
    pattern=$2
    shift 2
    # This file names all the words, data files are not prose.
    if grep -rnIE "$pattern" "$@" --exclude=check_words.sh --exclude-dir=build --exclude-dir=.git --exclude-dir=data \
        --exclude=LICENSE; then
        echo "  ^ $why"
        faults=1
    fi
}

forbid 'finish it, or file an issue' '\b(TODO|FIXME|XXX|HACK|NEEDSWORK)\b' .
forbid 'a path of one machine; a checkout works anywhere' \
    '(^|[^A-Za-z0-9_.}/-])/(work|home/[a-z]+|root|Users|mnt|var/tmp)/' .
forbid 'unbounded or without error: use the str_ functions, snprintf, json and expr readers, strtoull' \
    '\b(strcpy|strcat|sprintf|vsprintf|gets|strtok|atoi|atol|atof|alloca|setjmp|longjmp)\(' src
forbid 'locale-dependent or not reentrant: use gmtime_r and its kin' \
    '\b(gmtime|localtime|ctime|asctime|setlocale)\(' src

files=$(find src -name '*.c' -o -name '*.h' -o -name '*.cc' | grep -v '^src/cli/' || :)
# shellcheck disable=SC2086 # a list
[ -z "$files" ] || forbid 'read the environment in src/cli and pass the value down' '\b(secure_)?getenv\(' $files

exit "$faults"
