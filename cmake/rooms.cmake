# metrale_room(NAME DEPENDENCY...): src/NAME/*.c (and *.cc) as the static library metrale_NAME.
#
# main.c is left out: it belongs to an executable. A room with no sources yet is an empty interface library, so that
# the rooms above it link whatever the state of the tree.
function(metrale_room name)
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.c ${PROJECT_SOURCE_DIR}/src/${name}/*.cc)
    list(FILTER sources EXCLUDE REGEX "/main\\.c$")
    if(sources)
        add_library(metrale_${name} STATIC ${sources})
        set(scope PUBLIC)
    else()
        add_library(metrale_${name} INTERFACE)
        set(scope INTERFACE)
    endif()
    target_include_directories(metrale_${name} ${scope} ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(metrale_${name} ${scope} ${ARGN})
endfunction()
