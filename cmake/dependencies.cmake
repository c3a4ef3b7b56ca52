# Third-party libraries, by pkg-config; each is the imported target dep::NAME. `./dev setup` installs all of them.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

function(metrale_dependency name module)
    pkg_check_modules(${name} REQUIRED QUIET IMPORTED_TARGET ${module})
    add_library(dep::${name} ALIAS PkgConfig::${name})
endfunction()

metrale_dependency(jansson jansson)
metrale_dependency(tomlplusplus tomlplusplus)
metrale_dependency(xxhash libxxhash)
metrale_dependency(sodium libsodium)
metrale_dependency(utf8proc libutf8proc)
metrale_dependency(pcre2 libpcre2-8)
metrale_dependency(microhttpd libmicrohttpd)

# Only the tests need cmocka: a machine that only builds the binary may lack it.
pkg_check_modules(cmocka QUIET IMPORTED_TARGET cmocka)
if(cmocka_FOUND)
    add_library(dep::cmocka ALIAS PkgConfig::cmocka)
endif()
