#!/bin/sh
# count_tests.sh SOURCE_DIR: the closing line of `./dev test` counts what ctest's log says, and fails when it must.
set -eu
counter=$1/tools/count_tests.awk

# block NAME RESULT < the test's output: one test as ctest logs it
block() {
    printf '1/9 Testing: %s\n1/9 Test: %s\nOutput:\n-----\n' "$1" "$1"
    cat
    printf '<end of output>\nTest time =   0.00 sec\n-----\nTest %s.\n' "$2"
}

# expect NAME EXIT LINE...: counts ctest.out and LastTest.log and compares everything printed
expect() {
    name=$1
    code=$2
    shift 2
    printf '%s\n' "$@" >expected
    got=0
    awk -f "$counter" ctest.out LastTest.log >printed || got=$?
    if [ "$got" -ne "$code" ] || ! cmp -s expected printed; then
        echo "$name: exit $got, expected $code; printed and expected:"
        cat printed expected
        exit 1
    fi
    : >ctest.out
}

passing='[ RUN      ] a__one
[       OK ] a__one
[ RUN      ] a__two
some output [       OK ] a__two
[  PASSED  ] 2 test(s).'

: >ctest.out
{
    echo "$passing" | block text/a Passed
    echo fine | block architecture/x Passed
} >LastTest.log
expect 'cmocka tests one by one, a script as one' 0 '3 passed, 0 failed'

{
    echo "$passing" | block text/a Passed
    printf '[ RUN      ] b__bad\n[  FAILED  ] b__bad\n[  FAILED  ] 1 test(s), listed below:\n[  FAILED  ] b__bad\n' |
        block text/b Failed
} >LastTest.log
expect 'a failure counts once, though cmocka names it twice' 1 'FAILED: text/b: b__bad' '2 passed, 1 failed'

printf '[ RUN      ] c__one\n[       OK ] c__one\n[ RUN      ] c__dies\n' | block text/c Failed >LastTest.log
expect 'a crash fails the test that was running' 1 'FAILED: text/c: c__dies (ended the process)' '1 passed, 1 failed'

printf '%s\nERROR: LeakSanitizer\n' "$passing" | block text/d Failed >LastTest.log
expect 'a leak report after the last test' 1 'FAILED: text/d: (ended badly)' '2 passed, 1 failed'

echo 'usage' | block architecture/y Failed >LastTest.log
expect 'a script that failed' 1 'FAILED: architecture/y' '0 passed, 1 failed'

{
    echo "$passing" | block text/a Passed
    printf '[ RUN      ] e__avx\nSKIP: no AVX-512\n[  SKIPPED ] e__avx\n' | block kernels/e Passed
    printf '[ RUN      ] f__avx\nSKIP: no card\n[       OK ] f__avx\n' | block kernels/f Passed
} >LastTest.log
expect 'skipped tests are shown and are not passed' 0 'SKIP: kernels/e: no AVX-512' 'SKIP: kernels/f: no card' \
    '2 passed, 0 failed, 2 skipped'

echo '1/1 Test #1: model/g ......***Skipped   0.01 sec' >ctest.out
: | block model/g Passed >LastTest.log
expect 'exit status 77 alone is a skip' 0 'SKIP: model/g' '0 passed, 0 failed, 1 skipped'

printf '1/1 Testing: server/h\nOutput:\n[ RUN      ] h__hangs\n' >LastTest.log
expect 'ctest was stopped' 1 'FAILED: server/h: (never ended)' '0 passed, 1 failed'

: >LastTest.log
expect 'nothing ran' 1 '0 passed, 0 failed'
