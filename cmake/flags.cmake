# The language, the warnings and the instrumentation of every host source. Kernels have their own flags (KERNEL.toml)
# and are never instrumented.
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# NDEBUG stays undefined in a release too: an assert is a bug of ours, and a stopped server names it.
foreach(language C CXX)
    set(CMAKE_${language}_FLAGS_RELEASE "-O2 -g")
    set(CMAKE_${language}_FLAGS_DEBUG "-Og -g3")
endforeach()

add_compile_definitions(_GNU_SOURCE METRALE_VERSION="${PROJECT_VERSION}")
add_compile_options(
    -Wall -Wextra -Wshadow -Wpointer-arith -Wcast-qual -Wundef -Wvla -Werror
    $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>
    $<$<COMPILE_LANGUAGE:C>:-Wmissing-prototypes>)

if(METRALE_SANITIZE)
    add_compile_options(-fsanitize=${METRALE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    add_link_options(-fsanitize=${METRALE_SANITIZE})
endif()
# Counters are shared by threads: without atomic updates some come out negative.
if(METRALE_COVERAGE)
    add_compile_options(--coverage -fprofile-update=atomic)
    add_link_options(--coverage -fprofile-update=atomic)
endif()
if(METRALE_FUZZ)
    add_compile_options(-fsanitize=fuzzer-no-link)
endif()
