#!/bin/sh
# sbio.sh SOURCE_DIR BINARY_DIR | --self-test: the rooms that compute never touch the world.
#
# The archives of circuit, model, cache, sampling, engine and text must not call for files, sockets, devices, clocks, the
# environment, randomness or the terminal, neither by libc nor by core's wrappers of them. They reach the world through
# GpuBackend, WeightStore, Clock and queues that they are given. Besides, no room below the executables' own may end
# the process.
set -eu
# shellcheck source-path=SCRIPTDIR source=../support/self_test.sh
. "$(dirname "$0")/../support/self_test.sh"

pure_rooms='circuit model cache sampling engine text'
library_rooms="core closure compute kernels gpu weights server bench $pure_rooms"

# Extended regular expressions, each for a whole symbol name; a fortified __x_chk counts as x.
world='
open open64 openat openat64 creat creat64 close fopen fopen64 freopen fdopen fclose opendir readdir readdir64 scandir nftw
stat stat64 lstat lstat64 fstat fstat64 fstatat access unlink rename mkdir rmdir tmpfile mkstemp
read pread pread64 readv write pwrite pwrite64 writev fread fwrite fgets fputs fputc getline
mmap mmap64 munmap ioctl fcntl fcntl64 sendfile
socket connect bind listen accept accept4 send sendto sendmsg recv recvfrom recvmsg poll ppoll select epoll_.* getaddrinfo
clock_gettime clock_getres clock_nanosleep gettimeofday time clock ftime nanosleep usleep sleep
getenv secure_getenv setenv putenv unsetenv environ
rand srand random srandom rand_r .rand48(_r)? getrandom getentropy arc4random.* randombytes_.*
stdin stdout stderr printf vprintf puts putchar perror scanf
dlopen dlsym system popen fork vfork execv.* execl.* posix_spawn.*
cu[A-Z].* cuda[A-Z].* nccl[A-Z].* MPI_.*
file_.* dir_.* clock_system
'
ending='exit _exit _Exit quick_exit abort'

# fault_list WHY PATTERNS ARCHIVE: one line for each object and undefined symbol that a pattern names.
fault_list() {
    patterns=$(printf '%s' "$2" | tr -s ' \n' '||' | sed 's/^|//; s/|$//')
    nm -A --undefined-only "$3" 2>/dev/null |
        awk -v patterns="^($patterns)\$" -v why="$1" '
        {
            symbol = $NF
            sub(/@.*/, "", symbol)
            bare = symbol
            if (bare ~ /^__.*_chk$/) {
                sub(/^__/, "", bare)
                sub(/_chk$/, "", bare)
            }
            if (bare ~ patterns) {
                object = $1
                sub(/:$/, "", object)
                sub(/.*\//, "", object)
                print object ": " why " " symbol
            }
        }'
}

# archive ROOM: prints its path; fails if the room has sources but no archive. Nothing for a room without sources.
archive() {
    for source in "$source_dir/src/$1"/*.c; do
        [ -f "$source" ] || return 0
        if [ ! -f "$binary_dir/libmetrale_$1.a" ]; then
            echo "room $1 has sources but no $binary_dir/libmetrale_$1.a: build all targets first"
            return 1
        fi
        echo "$binary_dir/libmetrale_$1.a"
        return 0
    done
}

faults() {
    source_dir=$1
    binary_dir=$2
    for room in $pure_rooms; do
        lib=$(archive "$room") || { echo "$lib" && return 1; }
        [ -z "$lib" ] || fault_list 'a room without I/O calls' "$world" "$lib"
    done
    for room in $library_rooms; do
        lib=$(archive "$room") || { echo "$lib" && return 1; }
        [ -z "$lib" ] || fault_list 'library code may not end the process with' "$ending" "$lib"
    done
}

check() {
    found=$(faults "$@") || { printf '%s\n' "$found" && return 1; }
    [ -z "$found" ] || { printf '%s\n' "$found" && return 1; }
}

# build_room TREE ROOM < C source
build_room() {
    mkdir -p "$1/src/$2" "$1/build"
    cat >"$1/src/$2/a.c"
    cc -c -o "$1/build/a.o" "$1/src/$2/a.c"
    ar rcs "$1/build/libmetrale_$2.a" "$1/build/a.o"
}

self_test() {
    build_room good cache <<'END'
#include <stdlib.h>
#include <string.h>
void *twin(const char *s);
void *twin(const char *s) { return strcpy(malloc(strlen(s) + 1), s); }
END
    expect_clean good good/build

    # Each name as a pure room would use it.
    n=0
    for symbol in open openat socket read write clock_gettime time getenv rand getrandom printf cuInit cudaMalloc \
        file_read clock_system epoll_wait __read_chk; do
        n=$((n + 1))
        echo "void $symbol(void); void f(void); void f(void) { $symbol(); }" |
            (build_room "bad$n" engine 2>/dev/null)
        expect_fault "a room without I/O calls $symbol" "bad$n" "bad$n/build"
    done

    build_room ending gpu <<'END'
void exit(int status);
void f(void);
void f(void) { exit(1); }
END
    expect_fault 'may not end the process with exit' ending ending/build

    # The same call is fine where the room may do it.
    build_room allowed weights <<'END'
int open(const char *path, int flags);
int f(void);
int f(void) { return open("x", 0); }
END
    expect_clean allowed allowed/build

    mkdir -p unbuilt/src/text unbuilt/build
    : >unbuilt/src/text/a.c
    expect_fault 'room text has sources but no' unbuilt unbuilt/build
}

case $1 in
--self-test) self_test ;;
*) check "$@" ;;
esac
