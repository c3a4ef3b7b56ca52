# Fuzz targets, in the preset `fuzz` (clang's libFuzzer): fuzz/fuzz_<x>.c is the executable fuzz_<x>. The corpora in
# fuzz/corpus/<x> are replayed by ordinary tests in every preset.
#
#   cmake --preset fuzz && cmake --build --preset fuzz
#   mkdir -p build/found && build/fuzz/fuzz_gguf build/found fuzz/corpus/gguf       (new inputs go to the first folder)
file(GLOB fuzz_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/fuzz/fuzz_*.c)
foreach(source ${fuzz_sources})
    cmake_path(GET source STEM target)
    add_executable(${target} ${source})
    target_link_libraries(${target} PRIVATE metrale_server)
    target_link_options(${target} PRIVATE -fsanitize=fuzzer)
endforeach()
