# count_tests.awk - reads what ctest printed and then its LastTest.log (only the first tells a skipped executable), and
# prints, as its last line, `N passed, N failed[, N skipped]`.
#
# Counts cmocka tests where a test executable printed cmocka's lines, and the executable itself where it did not. A test
# that ended the process (crash, timeout, a sanitizer's report) counts as failed. A line `SKIP: why` is shown with the
# name of the test; the test counts as skipped even if it returned normally. Exits 1 if anything failed or nothing ran.

/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: .*\*\*\*Skipped/ {
    sub(/^.*#[0-9]+: /, "")
    exit_77[$1] = 1
    next
}
/^[0-9]+\/[0-9]+ Testing: / {
    name = $0
    sub(/^[^:]*: /, "", name)
    ok = bad = skip = said = 0
    running = ""
    inside = 0
}
name != "" && /^Output:$/ { inside = 1; next }
/^<end of output>$/ { inside = 0 }

inside && /\[ RUN      \] / { running = $NF }
inside && running != "" && /\[       OK \] / { ok++; running = "" }
inside && running != "" && /\[  FAILED  \] / { bad++; show("FAILED", running); running = "" }
inside && running != "" && /\[  SKIPPED \] / { skip++; running = "" }
inside && /SKIP: / {
    said++
    why = $0
    sub(/.*SKIP: /, "", why)
    print "SKIP: " name ": " why
}

/^Test (Passed|Failed)\.$/ {
    if (name in exit_77) {
        if (!said)
            print "SKIP: " name
        skip = ok + skip > 1 ? ok + skip : 1
        ok = 0
    } else {
        if (/Failed/ && (!bad || running != "")) {
            show("FAILED", running != "" ? running " (ended the process)" : ok + skip ? "(ended badly)" : "")
            bad++
        }
        if (ok + bad + skip == 0)
            ok = 1
        if (said > skip) { # a test said SKIP and returned
            extra = said - skip < ok ? said - skip : ok
            ok -= extra
            skip += extra
        }
    }
    passed += ok
    failed += bad
    skipped += skip
    name = ""
}

function show(what, which) { print what ": " name (which == "" ? "" : ": " which) }

END {
    if (name != "") { # ctest itself was stopped in the middle of this one
        failed++
        show("FAILED", "(never ended)")
    }
    line = (passed + 0) " passed, " (failed + 0) " failed"
    if (skipped)
        line = line ", " skipped " skipped"
    print line
    exit failed > 0 || passed + skipped == 0
}
