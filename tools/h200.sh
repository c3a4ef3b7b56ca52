#!/bin/sh
# h200.sh - the project on a machine with an NVIDIA H200 that has neither our compiler nor our libraries.
#
#   tools/h200.sh pack                      here: builds, and packs binary, tests, libraries and configs into dist-h200/
#   tools/h200.sh check                     there: every point, oracle, format and schedule on the GPU class
#   tools/h200.sh sanitize                 there: compute-sanitizer's four tools over the point tests (RULES, TEST: patterns)
#   tools/h200.sh time                      there: the benches, one process for each model and format (JOB: a pattern of names,
#                                           as 8b-*), each figure beside its bar (h200_bars.tsv)
#   tools/h200.sh steps                     there: every launch of the 8B's plans by itself (JOB as above)
#   tools/h200.sh check sanitize time       several in one call
#
# It runs in the root of the repository, whose tests/data it reads. Each part prints a short table; the whole output of each
# command is in $OUT/log (or dist-h200/log). A part that fails does not stop the others; the exit status says whether all passed.
#
# environment: CLASS (hopper), OUT, CONFIGS (../shared/configs, where pack finds the models' config.json),
#   GEN (256), REPEAT (1), LIMIT (seconds that one command may take, 240)
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

# Whether this job is among those asked for.
wanted() {
    # shellcheck disable=SC2254 # a pattern
    case $1 in
    ${JOB:-*}) return 0 ;;
    esac
    return 1
}

# record JOB METRALE-ARGUMENT...: its record goes to the log bench_JOB; then judge prints what it says.
record() {
    job=$1
    shift
    wanted "$job" || return
    from=$(date +%s)
    run "bench_$job" metrale bench "$@" --hardware "$class" --repeat "${REPEAT:-1}" --json
    rc=$?
    if [ $rc -eq 0 ]; then
        judge "$job" "$log/bench_$job"
    else
        printf '  %-16s exit %d: %s\n' "$job" "$rc" "$(tail -1 "$log/bench_$job" | cut -c1-200)"
        status=1
    fi
    printf '  %-16s took %s s\n' "$job" "$(($(date +%s) - from))"
}

# judge JOB RECORD: each figure that has a bar or that a table wants, as a line. A record has a row or a launch a line.
judge() {
    awk -F '\t' -v job="$1" '
        function text(key,    s) {
            if (!match($0, "\"" key "\": \"[^\"]*\"")) return ""
            s = substr($0, RSTART, RLENGTH)
            sub(/^[^:]*: "/, "", s); sub(/"$/, "", s)
            return s
        }
        function number(key,    s) {
            if (!match($0, "\"" key "\": ([{]\"median\": )?[-+0-9.e]+")) return 0
            s = substr($0, RSTART, RLENGTH)
            sub(/.*: /, "", s)
            return s + 0
        }
        # figure, at, value, the rest of the line
        function show(figure, at, value, more,    k, b, verdict) {
            k = (job SUBSEP figure SUBSEP at) in bar ? job SUBSEP figure SUBSEP at : "*" SUBSEP figure SUBSEP at
            if (!(k in bar)) { b = "- - - -" } else b = bar[k]
            split(b, v, " ")
            verdict = v[2] == "-" ? "" : (figure == "start" ? value <= v[2] : value >= v[2]) ? "pass" : "MISS"
            if (verdict == "pass" && (figure == "start" ? value <= v[3] : value >= v[3])) verdict = "goal"
            printf "  %-16s %-18s %6s %11.4g   %7s %7s %7s %7s  %-5s %s\n", job, figure, at, value, v[1], v[2], v[3], v[4], verdict, more
        }
        # the slowest of several launches is what counts
        function slowest(figure, at, value, what,    k) {
            k = figure SUBSEP at
            if (!(k in least) || value < least[k]) { least[k] = value; whose[k] = what }
        }
        FNR == NR { if ($0 !~ /^#/ && NF == 7) bar[$1 SUBSEP $2 SUBSEP $3] = $4 " " $5 " " $6 " " $7; next }
        /^"start"/ {
            show("start", "-", number("rest_s"), sprintf("s beyond %.2f s for %.2f GB of weights, %.2f GB/s", number("load_s"),
                 number("load_bytes") / 1e9, number("load_gb_s")))
        }
        /"decode_tok_s"/ {
            more = sprintf("step %.3f ms (p99 %.3f), first token %.2f ms, prefill %.0f tok/s", number("step_p50_ms"),
                           number("step_p99_ms"), number("ttft_ms"), number("prefill_tok_s"))
            if (number("prompt") >= 4096)
                show("prefill", number("prompt"), number("prefill_tok_s"), sprintf("tok/s; first token %.2f ms", number("ttft_ms")))
            else
                show("decode", number("concurrency"), number("decode_tok_s"),
                     sprintf("tok/s; %.1f%% of copy; %s", 100 * number("share_of_copy"), more))
        }
        /"op": / {
            op = text("op"); at = text("at"); split(at, a, " "); what = text("nodes") " " text("entry")
            many = a[3] >= 2048
            if (op ~ /linear/ && many && number("tflops") > 0) slowest("gemm", a[3], number("tflops"), "TFLOP/s, the least: " what)
            if (op ~ /linear|lm_head/ && a[3] == 1 && number("mb") >= 50) slowest("matvec", a[1], number("gb_s"), "GB/s, the least: " what)
            if (op ~ /attention/ && many) slowest("prefill-attention", a[3], number("tflops"), "TFLOP/s: " what)
            if (op ~ /attention/ && a[3] == 1) slowest("decode-attention", a[1], number("gb_s"), "GB/s: " what)
            if (text("nodes") == "step") show("step", a[1] "x" a[3], number("us"), "us behind " a[6])
            if (text("nodes") == "launches") show("launches", a[1] "x" a[3], number("us") * number("launches"), "us, one by one")
        }
        END { for (k in least) { split(k, p, SUBSEP); show(p[1], p[2], least[k], whose[k]) } }
    ' "$here/tools/h200_bars.tsv" "$2"
}

head_line() {
    printf '%s\n  %-16s %-18s %6s %11s   %7s %7s %7s %7s\n' "$1" job figure at measured vLLM must goal wall
}

time_all() {
    unpack
    gen=${GEN:-256}
    at='--prompt 128 --gen '"$gen"' --concurrency 1,8,32,128'
    head_line "time: class $class, prompt 128, $gen generated, ${REPEAT:-1} times"
    # shellcheck disable=SC2086 # lists
    {
        record 8b-bf16 "$work/configs/qwen3-8b.json" --dummy bf16 $at --prefill 8192
        record 8b-fp8 "$work/configs/qwen3-8b.json" --dummy fp8-block $at --prefill 8192
        record 35b-a3b-fp8 "$work/configs/qwen3.5-35b-a3b.json" --dummy fp8-block $at
        record 30b-a3b-fp8 "$work/configs/qwen3-30b-a3b.json" --dummy fp8-block $at
        record next-80b-nvfp4 "$work/configs/qwen3-next-80b-a3b-nvfp4.json" --dummy config --prompt 128 --gen "$gen"
    }
}

# Decode attention is measured behind 8k tokens, matrices as they are at 1 and 8 rows, products and prefill attention over 8k rows.
steps_all() {
    unpack
    head_line "steps: class $class, launches alone, behind 8192 tokens"
    for format in bf16 fp8; do
        dummy=$format
        [ $format = bf16 ] || dummy=fp8-block
        record 8b-$format "$work/configs/qwen3-8b.json" --dummy $dummy --steps --prompt 8192 --gen 2 --concurrency 1,8,32
        [ ! -e "$log/bench_8b-$format" ] || mv "$log/bench_8b-$format" "$log/steps_8b-$format"
    done
}

# ---- main ----------------------------------------------------------------------------------------------------------

[ $# -gt 0 ] || die 'what to do: pack, check, sanitize, time, steps'
for verb; do
    case $verb in
    pack) pack ;;
    check) check ;;
    sanitize) sanitize ;;
    time) time_all ;;
    steps) steps_all ;;
    *) die "$verb: there are pack, check, sanitize, time, steps" ;;
    esac
done
exit $status
