# Tests. Each tests/<room>/test_<x>.c is the executable test_<room>_<x>, known to ctest as <room>/<x>. It runs in an
# empty directory of its own in the build tree and exits 77 when it cannot run on this machine.
#
# Labels: the room, and the tier that `./dev test TIER` selects: kernels, model, server, or unit for all other rooms.

# Rooms whose tests run real kernels, and so link the registry.
set(rooms_with_registry kernels model engine server bench cli)

function(metrale_test_case name room timeout)
    set(cwd ${PROJECT_BINARY_DIR}/test-tmp/${name})
    file(MAKE_DIRECTORY ${cwd})
    if(room MATCHES "^(kernels|model|server)$")
        set(tier ${room})
    else()
        set(tier unit)
    endif()
    # Tests that run the worker pool, which spins on every CPU, would only slow each other down.
    if(room IN_LIST rooms_with_registry)
        set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
    endif()
    set_tests_properties(${name} PROPERTIES
        WORKING_DIRECTORY ${cwd} TIMEOUT ${timeout} SKIP_RETURN_CODE 77 LABELS "${room};${tier}")
endfunction()

file(GLOB test_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/*/test_*.c)
foreach(source ${test_sources})
    cmake_path(GET source PARENT_PATH dir)
    cmake_path(GET dir FILENAME room)
    cmake_path(GET source STEM stem)
    string(REGEX REPLACE "^test_" "" x ${stem})
    set(target test_${room}_${x})

    add_executable(${target} ${source})
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
    target_compile_definitions(${target} PRIVATE
        METRALE_SOURCE_DIR="${PROJECT_SOURCE_DIR}" METRALE_BINARY_DIR="${PROJECT_BINARY_DIR}")
    if(room STREQUAL "kbuild")
        target_link_libraries(${target} PRIVATE metrale_kbuild_parts)
    elseif(room STREQUAL "docs")
        target_link_libraries(${target} PRIVATE metrale_circuit)
    elseif(TARGET metrale_${room})
        target_link_libraries(${target} PRIVATE metrale_${room})
    endif()
    target_link_libraries(${target} PRIVATE dep::cmocka)
    if(room IN_LIST rooms_with_registry)
        metrale_link_registry(${target})
    endif()
    if(room STREQUAL "kernels")
        # The points are compared with the reference functions, which live above the kernels.
        target_link_libraries(${target} PRIVATE metrale_model metrale_sampling)
    endif()

    add_test(NAME ${room}/${x} COMMAND ${target})
    metrale_test_case(${room}/${x} ${room} 300)
endforeach()

# tests/architecture/<x>.sh SOURCE_DIR BINARY_DIR checks the tree itself; `<x>.sh --self-test` plants each fault in a
# small tree and demands that the check finds it.
file(GLOB architecture_checks CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/architecture/*.sh)
foreach(script ${architecture_checks})
    cmake_path(GET script STEM x)
    add_test(NAME architecture/${x} COMMAND sh ${script} ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
    metrale_test_case(architecture/${x} architecture 120)
    add_test(NAME architecture/${x}_can_fail COMMAND sh ${script} --self-test)
    metrale_test_case(architecture/${x}_can_fail architecture 120)
endforeach()

# tests/tools/<x>.sh SOURCE_DIR tests a script of tools/.
file(GLOB tool_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/tools/*.sh)
foreach(script ${tool_tests})
    cmake_path(GET script STEM x)
    add_test(NAME tools/${x} COMMAND sh ${script} ${PROJECT_SOURCE_DIR})
    metrale_test_case(tools/${x} tools 120)
endforeach()

# tests/docs/<x>.sh SOURCE_DIR BINARY_DIR holds the README and the book against the tree and the binary, with a self-test
# as in tests/architecture. The examples of the book run the worker pool.
file(GLOB doc_checks CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/docs/*.sh)
foreach(script ${doc_checks})
    cmake_path(GET script STEM x)
    add_test(NAME docs/${x} COMMAND sh ${script} ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
    metrale_test_case(docs/${x} docs 600) # a cold kernel cache, on a busy machine
    if(x MATCHES "^commands")
        set_tests_properties(docs/${x} PROPERTIES RUN_SERIAL ON)
    endif()
    add_test(NAME docs/${x}_can_fail COMMAND sh ${script} --self-test)
    metrale_test_case(docs/${x}_can_fail docs 120)
endforeach()

# tests/e2e/<x>.py BINARY drives the binary as its users do, with the default model; without that, or Python, skipped.
find_program(METRALE_PYTHON3 python3)
file(GLOB e2e_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/e2e/*.py)
if(METRALE_PYTHON3 AND TARGET metrale)
    foreach(script ${e2e_tests})
        cmake_path(GET script STEM x)
        add_test(NAME e2e/${x} COMMAND ${METRALE_PYTHON3} ${script} $<TARGET_FILE:metrale>)
        metrale_test_case(e2e/${x} server 300)
        set_tests_properties(e2e/${x} PROPERTIES RUN_SERIAL ON)
    endforeach()
endif()
