# The kernel tree: metrale_kbuild compiles kernels/ for every chosen target and writes, into the build directory,
#
#   kernels/libmetrale_kernels.a   the CPU kernels' objects
#   kernels/registry.c             metrale_registry: targets, entries, GPU images, every TOML file of kernels/ and circuits/
#   kernels/registry.d             each file that was read, for Ninja
#
# which become the library metrale_registry. Compiled artifacts live in a cache outside the build directory, named by
# their content, so that all presets (and all checkouts) share them.
#
# METRALE_TARGET_HW, METRALE_TARGET_MODEL, METRALE_TARGET_QUANT (globs) choose the targets; METRALE_SKIP_BUILD=1 emits an
# empty registry. Each is read from the environment at configure time and then kept in the CMake cache.
foreach(lever METRALE_TARGET_HW METRALE_TARGET_MODEL METRALE_TARGET_QUANT METRALE_SKIP_BUILD METRALE_NVCC)
    if(DEFINED ENV{${lever}})
        set(${lever} "$ENV{${lever}}" CACHE STRING "see cmake/kernels.cmake" FORCE)
    else()
        set(${lever} "" CACHE STRING "see cmake/kernels.cmake")
    endif()
endforeach()

if(DEFINED ENV{XDG_CACHE_HOME} AND NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
    set(cache_home "$ENV{XDG_CACHE_HOME}")
else()
    set(cache_home "$ENV{HOME}/.cache")
endif()
set(METRALE_KERNEL_CACHE "${cache_home}/metrale/kernels" CACHE PATH "Compiled kernels, named by their content")

file(GLOB kbuild_sources CONFIGURE_DEPENDS
    ${PROJECT_SOURCE_DIR}/src/kbuild/*.c ${PROJECT_SOURCE_DIR}/src/kernels/build/*.c)
list(FILTER kbuild_sources EXCLUDE REGEX "/kbuild/main\\.c$")

# The driver's parts as a library, so that tests/kbuild links them too.
if(kbuild_sources)
    add_library(metrale_kbuild_parts STATIC ${kbuild_sources})
    target_include_directories(metrale_kbuild_parts PUBLIC ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(metrale_kbuild_parts PUBLIC metrale_kernels metrale_closure metrale_compute metrale_core)
else()
    add_library(metrale_kbuild_parts INTERFACE)
    target_link_libraries(metrale_kbuild_parts INTERFACE metrale_kernels metrale_closure metrale_compute metrale_core)
endif()

if(EXISTS ${PROJECT_SOURCE_DIR}/src/kbuild/main.c)
    add_executable(metrale_kbuild src/kbuild/main.c)
    target_link_libraries(metrale_kbuild PRIVATE metrale_kbuild_parts)

    set(kernels_out ${PROJECT_BINARY_DIR}/kernels)
    cmake_host_system_information(RESULT n_cores QUERY NUMBER_OF_LOGICAL_CORES)
    set(kbuild_args
        --tree ${PROJECT_SOURCE_DIR}/kernels --circuits ${PROJECT_SOURCE_DIR}/circuits
        --abi ${PROJECT_SOURCE_DIR}/src/kernels --cache ${METRALE_KERNEL_CACHE} --out ${kernels_out} --jobs ${n_cores})
    if(METRALE_TARGET_HW)
        list(APPEND kbuild_args --hw ${METRALE_TARGET_HW})
    endif()
    if(METRALE_TARGET_MODEL)
        list(APPEND kbuild_args --model ${METRALE_TARGET_MODEL})
    endif()
    if(METRALE_TARGET_QUANT)
        list(APPEND kbuild_args --quant ${METRALE_TARGET_QUANT})
    endif()
    if(METRALE_NVCC)
        list(APPEND kbuild_args --nvcc ${METRALE_NVCC})
    endif()
    if(METRALE_SKIP_BUILD)
        list(APPEND kbuild_args --skip)
    endif()

    # The globs notice a file that is added or removed; the depfile notices an edit of anything else that was read.
    file(GLOB_RECURSE kernel_inputs CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/* ${PROJECT_SOURCE_DIR}/circuits/*)
    add_custom_command(
        OUTPUT ${kernels_out}/registry.c ${kernels_out}/libmetrale_kernels.a
        COMMAND metrale_kbuild ${kbuild_args}
        DEPENDS metrale_kbuild ${kernel_inputs}
        DEPFILE ${kernels_out}/registry.d
        COMMENT "Kernels"
        USES_TERMINAL VERBATIM)

    add_library(metrale_registry STATIC ${kernels_out}/registry.c ${kernels_out}/libmetrale_kernels.a)
    target_include_directories(metrale_registry PUBLIC ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(metrale_registry PUBLIC ${kernels_out}/libmetrale_kernels.a m)
endif()

# metrale_link_registry(TARGET): gives TARGET the compiled kernels, once the tree has a driver to compile them.
function(metrale_link_registry target)
    if(TARGET metrale_registry)
        target_link_libraries(${target} PRIVATE metrale_registry)
    endif()
endfunction()
