#!/bin/sh
# Builds the peer that CPU figures are held against: llama.cpp, out of the PyPI sdist llama-cpp-python, for this machine's CPU.
# Nothing of it enters the repository. Prints the folder with llama-bench, llama-perplexity.
#
#   tools/peers/llama_cpp.sh            # into ${XDG_CACHE_HOME:-~/.cache}/metrale/peers/llama_cpp
set -eu
version=0.3.36
dir=${XDG_CACHE_HOME:-$HOME/.cache}/metrale/peers/llama_cpp
jobs=${JOBS:-$(nproc)}

if [ ! -x "$dir/bin/llama-bench" ] || [ ! -x "$dir/bin/llama-perplexity" ]; then
    mkdir -p "$dir/dl"
    if [ ! -d "$dir/src" ]; then
        python3 -m pip download --quiet --no-deps --no-binary :all: -d "$dir/dl" "llama-cpp-python==$version" >&2
        mkdir "$dir/unpack"
        tar -xzf "$dir/dl/llama_cpp_python-$version.tar.gz" -C "$dir/unpack"
        mv "$dir/unpack/llama_cpp_python-$version/vendor/llama.cpp" "$dir/src"
        rm -rf "$dir/unpack"
    fi
    cmake -S "$dir/src" -B "$dir/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF \
        -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_SERVER=OFF >&2
    cmake --build "$dir/build" -j "$jobs" --target llama-bench llama-perplexity >&2
    mkdir -p "$dir/bin"
    cp "$dir/build/bin/llama-bench" "$dir/build/bin/llama-perplexity" "$dir/bin/"
fi
echo "$dir/bin"
