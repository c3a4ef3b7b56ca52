#!/bin/sh
# h200.sh - the project on a machine with an NVIDIA H200 that has neither our compiler nor our libraries.
#
#   tools/h200.sh pack                      here: builds, and packs binary, tests, libraries and configs into dist-h200/
#   tools/h200.sh check                     there: every point, oracle, format and schedule on the GPU class
#   tools/h200.sh sanitize                 there: compute-sanitizer's four tools over the point tests (RULES, TEST: patterns)
#   tools/h200.sh time                     there: the benches, one row each (JOB: a pattern of names, as 8b-*)
#   tools/h200.sh check sanitize time       several in one call
#
# It runs in the root of the repository, whose tests/data it reads. Each part prints a short table; the whole output of each
# command is in $OUT/log (or dist-h200/log). A part that fails does not stop the others; the exit status says whether all passed.
#
# environment: CLASS (hopper), OUT, CONFIGS (../shared/configs, where pack finds the models' config.json),
#   GEN (256), LIMIT (seconds that one command may take, 240)
set -u

class=${CLASS:-hopper}
dist='dist-h200'
here=$(pwd)
log=${OUT:-$here/$dist}/log
work=${TMPDIR:-/tmp}/metrale-h200
# ours first, then where the driver's library may be
libs=$work/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}:/usr/local/nvidia/lib64:/usr/local/nvidia/lib
status=0

die() {
    printf 'h200: %s\n' "$*" >&2
    exit 1
}

# ---- pack ----------------------------------------------------------------------------------------------------------

programs='metrale test_kernels_points test_model_oracles test_model_formats test_model_schedules test_gpu_cuda'

pack() {
    build=build/h200
    cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release "-DMETRALE_TARGET_HW=$class" >/dev/null || die 'cmake failed'
    # shellcheck disable=SC2086 # a list
    ninja -C "$build" -j2 $programs || die 'the build failed'
    stage=$build/dist
    rm -rf "$stage" "$dist"
    mkdir -p "$stage/bin" "$stage/lib" "$stage/libc" "$stage/configs" "$dist"
    for p in $programs; do
        strip -o "$stage/bin/$p" "$build/$p"
        # The compiler's libraries and the loader lie apart: they are for a machine whose own are older.
        ldd "$build/$p" | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p; s/^[[:space:]]*\(\/[^ ]*ld-[^ ]*\) .*/\1/p'
    done | sort -u | while read -r lib; do
        case $(basename "$lib") in
        libc.so* | libm.so* | libdl.so* | libpthread.so* | librt.so* | libstdc++.so* | libgcc_s.so* | ld-*) cp -L "$lib" "$stage/libc/" ;;
        *) cp -L "$lib" "$stage/lib/" ;;
        esac
    done
    for c in "${CONFIGS:-../shared/configs}"/*/config.json; do
        [ -e "$c" ] && cp "$c" "$stage/configs/$(basename "$(dirname "$c")").json"
    done
    git rev-parse HEAD >"$stage/commit" 2>/dev/null
    printf '# dist-h200\n\nMade by tools/h200.sh for a machine with a GPU; nothing here is kept.\n' >"$dist/README.md"
    tar -C "$stage" -czf "$dist/pack.tar.gz" . || die 'tar failed'
    printf 'packed: %s, %s of programs, %s to carry\n' "$(cut -c1-12 <"$stage/commit")" \
        "$(du -sh "$stage/bin" | cut -f1)" "$(du -sh "$dist" | cut -f1)"
}

# ---- there ---------------------------------------------------------------------------------------------------------

unpack() {
    [ -e "$dist/pack.tar.gz" ] || die "$dist/pack.tar.gz is missing: run \`tools/h200.sh pack\` where the compilers are"
    if ! cmp -s "$dist/pack.tar.gz" "$work.tar.gz"; then
        rm -rf "$work"
        mkdir -p "$work"
        tar -C "$work" -xzf "$dist/pack.tar.gz" || die 'tar failed'
        cp "$dist/pack.tar.gz" "$work.tar.gz"
    fi
    mkdir -p "$log"
    loader=
    if ! LD_LIBRARY_PATH=$libs "$work/bin/metrale" version >/dev/null 2>&1; then
        loader="$(ls "$work"/libc/ld-*) --library-path $work/libc:$libs:/usr/lib/x86_64-linux-gnu"
        # shellcheck disable=SC2086
        $loader "$work/bin/metrale" version >/dev/null || die 'the binary does not start here'
    fi
    # shellcheck disable=SC2086
    LD_LIBRARY_PATH=$libs $loader "$work/bin/metrale" version | grep -q "^  $class/.*runs here" ||
        die "this machine cannot run class $class"
    printf '%s, commit %s\n' "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -1)" \
        "$(cut -c1-12 "$work/commit")"
}

# run NAME PROGRAM ARGUMENT...: its output goes to the log NAME; the exit status is kept.
run() {
    name=$1
    shift
    program=$1
    shift
    # shellcheck disable=SC2086
    LD_LIBRARY_PATH=$libs timeout "${LIMIT:-240}" ${under:-} $loader "$work/bin/$program" "$@" >"$log/$name" 2>&1
}

# One row of a test's log: how many passed, failed; then what failed, a line each.
test_row() {
    name=$1
    rc=$2
    passed=$(grep -c '^\[       OK \]' "$log/$name")
    failed=$(grep -c '^\[  FAILED  \] [^0-9]' "$log/$name")
    skipped=$(grep -c '^\[  SKIPPED \] [^0-9]' "$log/$name")
    printf '  %-28s %4d passed %4d failed %4d skipped  exit %d\n' "$name" "$passed" "$((failed / 2))" "$((skipped / 2))" "$rc"
    grep -h '^\[  ERROR   \]' -A1 "$log/$name" | grep -v '^--' | grep -v 'ERROR   ] --- $' | cut -c1-220 | sed 's/^/      /' | head -40
    [ "$rc" -eq 0 ] || status=1
}

# Each rule in a process of its own, eight at a time: a fault in one kernel takes the whole process's device.
points_one_by_one() {
    run rules test_kernels_points "$class" --list
    mkdir -p "$log/rules.d"
    # shellcheck disable=SC2016,SC2086 # the inner shell expands it
    LD_LIBRARY_PATH=$libs xargs -P 8 -I RULE sh -c \
        'timeout 120 "$@" RULE >'"$log"'/rules.d/RULE 2>&1 || echo RULE' - $loader "$work/bin/test_kernels_points" "$class" \
        <"$log/rules" >"$log/rules_failed"
    printf '  rules: %d, of which %d fail\n' "$(grep -c . "$log/rules")" "$(grep -c . "$log/rules_failed")"
    while read -r rule; do
        printf '  -- %s\n' "$rule"
        grep -h -A1 '^\[  ERROR   \]' "$log/rules.d/$rule" | grep -v '^--\|   LINE   ' | cut -c1-250 | sort -u | head -6
    done <"$log/rules_failed"
}

check() {
    unpack
    echo "check: class $class"
    run points test_kernels_points "$class"
    rc=$?
    test_row points $rc
    [ "$rc" -eq 0 ] || points_one_by_one
    for t in model_oracles model_formats model_schedules; do
        run "$t" "test_$t" "$class"
        test_row "$t" $?
    done
    run gpu_cuda test_gpu_cuda
    test_row gpu_cuda $?
}

sanitize() {
    unpack
    echo "sanitize: class $class"
    command -v compute-sanitizer >/dev/null || die 'compute-sanitizer is not on PATH'
    for tool in memcheck racecheck initcheck synccheck; do
        under="compute-sanitizer --tool $tool --error-exitcode 99 --print-limit 20"
        run "sanitize_$tool" test_kernels_points "$class" "${RULES:-*}" "${TEST:-points__agree_with_the_reference}"
        rc=$?
        under=
        printf '  %-12s exit %3d  %s\n' "$tool" "$rc" "$(grep -h 'ERROR SUMMARY\|RACECHECK SUMMARY' "$log/sanitize_$tool" | tail -1)"
        grep -h '========= .*at \|========= .*in .*(' "$log/sanitize_$tool" | sort | uniq -c | sort -rn | head -5
        [ "$rc" -eq 0 ] || status=1
    done
}

field() { sed -n "s/.*\"$2\": \([0-9.]*\).*/\1/p" "$log/$1"; }

# bench JOB CONFIG FORMAT CONCURRENCY PROMPT
bench() {
    # shellcheck disable=SC2254 # a pattern
    case $1 in
    ${JOB:-*}) ;;
    *) return ;;
    esac
    from=$(date +%s)
    run "bench_$1" metrale bench "$work/configs/$2.json" --dummy "$3" --hardware "$class" --prompt "$5" --gen "$6" \
        --concurrency "$4" --repeat 1 --json --max-len $(($5 + $6 + 16)) --kv-tokens $((($5 + $6 + 32) * $4)) --max-rows 8192
    rc=$?
    printf '  %-28s %12s %12s %10s %10s %8s   %3ss\n' "$1" "$(field "bench_$1" decode_tok_s)" "$(field "bench_$1" prefill_tok_s)" \
        "$(field "bench_$1" step_p50_ms)" "$(field "bench_$1" ttft_ms)" "$(field "bench_$1" share_of_copy)" \
        "$(($(date +%s) - from))"
    if [ $rc -ne 0 ]; then
        status=1
        tail -1 "$log/bench_$1" | cut -c1-200 | sed 's/^/      /'
    fi
}

time_all() {
    unpack
    gen=${GEN:-256}
    printf 'time: class %s, prompt 128, %s generated\n  %-28s %12s %12s %10s %10s %8s   %s\n' "$class" "$gen" job 'decode tok/s' \
        'prefill tok/s' 'step ms' 'first ms' 'of copy' 'wall'
    for c in 1 8 32 128; do
        bench "8b-bf16-$c" qwen3-8b bf16 $c 128 "$gen"
        bench "8b-fp8-$c" qwen3-8b fp8/128 $c 128 "$gen"
    done
    bench 8b-bf16-prefill qwen3-8b bf16 1 8192 16
    bench 8b-fp8-prefill qwen3-8b fp8/128 1 8192 16
    for c in 1 8 32 128; do
        bench "35b-a3b-fp8-$c" qwen3.5-35b-a3b fp8/128 $c 128 "$gen"
        bench "30b-a3b-fp8-$c" qwen3-30b-a3b fp8/128 $c 128 "$gen"
    done
    bench next-80b-nvfp4-1 qwen3-next-80b-a3b-nvfp4 config 1 128 "$gen"
}

# ---- main ----------------------------------------------------------------------------------------------------------

[ $# -gt 0 ] || die 'what to do: pack, check, sanitize, time'
for verb; do
    case $verb in
    pack) pack ;;
    check) check ;;
    sanitize) sanitize ;;
    time) time_all ;;
    *) die "$verb: there are pack, check, sanitize, time" ;;
    esac
done
exit $status
