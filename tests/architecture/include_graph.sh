#!/bin/sh
# include_graph.sh SOURCE_DIR [BINARY_DIR] | --self-test: includes point downward only.
#
# Every quoted include in src/ has the form "room/file.h" and names the own room or one that the table allows. A table
# entry with a slash allows that one header. src/kernels/build is the room kbuild: the build driver, not the look-up.
set -eu
# shellcheck source-path=SCRIPTDIR source=../support/self_test.sh
. "$(dirname "$0")/../support/self_test.sh"

table='
core
closure   core
compute   core
kernels   core closure compute
kbuild    core closure compute kernels
gpu       core kernels/registry.h kernels/kernel_abi.h
weights   core
text      core
sampling  core
cache     core
circuit   core kernels
model     core kernels circuit weights gpu
engine    core kernels circuit weights gpu model sampling cache text
server    core kernels circuit weights gpu model sampling cache text engine
bench     core kernels circuit weights gpu model sampling cache text engine
cli       core closure compute kernels circuit weights gpu model sampling cache text engine server bench
'

check() {
    (cd "$1" && find src -type f \( -name '*.c' -o -name '*.h' -o -name '*.cc' \) | sort |
        xargs grep -Hn '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' /dev/null) |
        awk -v table="$table" '
        BEGIN {
            n = split(table, rows, "\n")
            for (i = 1; i <= n; i++) {
                m = split(rows[i], word, " ")
                if (m)
                    known[word[1]] = 1
                for (j = 2; j <= m; j++)
                    allowed[word[1], word[j]] = 1
            }
        }
        function room_of(path) { # path without src/
            if (path ~ /^kernels\/build\//)
                return "kbuild"
            return path ~ /\// ? substr(path, 1, index(path, "/") - 1) : ""
        }
        function fault(what) {
            print place ": " what
            faults++
        }
        {
            split($0, part, ":")
            place = part[1] ":" part[2]
            from = room_of(substr(part[1], 5))
            header = $0
            sub(/^[^"]*"/, "", header)
            sub(/".*/, "", header)
            to = room_of(header)
            if (!(from in known))
                fault("the room \"" from "\" is not in the table of tests/architecture/include_graph.sh; add its row")
            else if (to == "" || header ~ /\.\./)
                fault("include \"" header "\": write it as \"room/file.h\"")
            else if (to != from && !((from, to) in allowed) && !((from, header) in allowed))
                fault("room " from " must not include \"" header "\"; includes point downward only")
            else
                good++
        }
        END {
            if (!faults && !good) {
                print "no includes found: is this the source tree?"
                faults = 1
            }
            exit faults > 0
        }'
}

self_test() {
    plant good/src/model/a.c <<'END'
#include "circuit/plan.h"
#include "model/a.h"
#include <stdio.h>
END
    plant good/src/gpu/a.c <<'END'
#include "kernels/registry.h"
END
    plant good/src/kernels/build/a.c <<'END'
#include "closure/scan.h"
END
    expect_clean good

    plant upward/src/cache/kv.c <<'END'
/* a comment */
#include "engine/engine.h"
END
    expect_fault 'src/cache/kv.c:2: room cache must not include "engine/engine.h"' upward
    plant header/src/gpu/a.c <<'END'
#include "kernels/other.h"
END
    expect_fault 'room gpu must not include "kernels/other.h"' header
    plant bare/src/core/a.c <<'END'
#  include "str.h"
END
    expect_fault 'write it as "room/file.h"' bare
    plant stranger/src/extra/a.c <<'END'
#include "core/str.h"
END
    expect_fault 'the room "extra" is not in the table' stranger
    plant empty/src/core/a.c </dev/null
    expect_fault 'no includes found' empty
}

case $1 in
--self-test) self_test ;;
*) check "$@" ;;
esac
