# The commit that is checked out, for records of measurements: src/cli/host.c gets it as METRALE_COMMIT. A build after a new commit
# configures again.
set(metrale_commit unknown)
find_program(METRALE_GIT git)
mark_as_advanced(METRALE_GIT)
if(METRALE_GIT)
    execute_process(COMMAND ${METRALE_GIT} rev-parse HEAD --git-path logs/HEAD
        WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
        OUTPUT_VARIABLE answer RESULT_VARIABLE failed ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT failed)
        string(REPLACE "\n" ";" answer "${answer}")
        list(GET answer 0 metrale_commit)
        list(GET answer 1 log)
        get_filename_component(log "${log}" ABSOLUTE BASE_DIR ${PROJECT_SOURCE_DIR})
        if(EXISTS ${log})
            set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${log})
        endif()
    endif()
endif()
set_source_files_properties(src/cli/host.c PROPERTIES COMPILE_DEFINITIONS METRALE_COMMIT="${metrale_commit}")
