# ciranda_cpp_test(<folder> [DEPS <layer or target>...] SOURCES <file>... [LABELS <label>...] [TIMEOUT <seconds>]
#   [FIRST <suite>...])
#
# One GoogleTest binary ciranda_<folder>_test, one ctest entry a test suite (named <folder>.<Suite>, found when ctest
# starts), label <folder>. The layer of the folder itself is linked where it exists; call it again with another first
# word (and that layer in DEPS) for a second binary. ctest starts the suites in FIRST before all others: those that sleep,
# beside which others compute. Call it from tests/cpp/<folder>/CMakeLists.txt.
function(ciranda_cpp_test name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "TIMEOUT" "DEPS;SOURCES;LABELS;FIRST")
  if(name IN_LIST CIRANDA_SUITES_LEFT_OUT)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  ciranda_resolve_deps(deps ${ARG_DEPS})
  list(APPEND deps $<TARGET_NAME_IF_EXISTS:ciranda_${name}>)
  set(target ciranda_${name}_test)
  add_executable(${target} ${ARG_SOURCES})
  ciranda_compile_options(${target})
  ciranda_compile_together(${target})
  # The tests' own code is hardly worth optimizing: that would take half as long again as compiling it takes.
  set(not_optimized -O1)
  # A header that was read beforehand serves what is compiled alike.
  set(on_their_own ${ARG_SOURCES})
  list(FILTER on_their_own INCLUDE REGEX "\\.c$")
  if(CIRANDA_SANITIZE MATCHES "undefined")
    # And what only calls the engine is not worth the instructions that look for undefined behaviour either: with them it
    # takes two and a half times as long to compile. What computes, in files of other names, keeps both.
    set(not_optimized -O0 -fno-sanitize=undefined)
    set(on_their_own ${ARG_SOURCES})
    list(FILTER on_their_own EXCLUDE REGEX "_test\\.cc$")
    set_source_files_properties(${on_their_own} PROPERTIES COMPILE_OPTIONS "-O1;-fsanitize=undefined")
  endif()
  target_compile_options(${target} PRIVATE ${not_optimized})
  set_source_files_properties(${on_their_own} PROPERTIES SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/cpp ${PROJECT_SOURCE_DIR}/tests/cpp)
  target_link_libraries(${target} PRIVATE ${deps} GTest::gtest GTest::gtest_main)
  ciranda_precompile_test_headers(${target})
  set(entries ${CMAKE_CURRENT_BINARY_DIR}/${target}_suites.cmake)
  file(GENERATE OUTPUT ${entries} CONTENT "set(suites_folder \"${name}\")
set(suites_binary \"$<TARGET_FILE:${target}>\")
set(suites_emulator \"${CMAKE_CROSSCOMPILING_EMULATOR}\")
set(suites_without \"${CIRANDA_TESTS_LEFT_OUT}\")
set(suites_first \"${ARG_FIRST}\")
set(suites_properties LABELS \"${name};${ARG_LABELS}\" TIMEOUT ${ARG_TIMEOUT})
include(\"${PROJECT_SOURCE_DIR}/cmake/CirandaSuites.cmake\")
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${entries})
endfunction()

# To read GoogleTest's headers takes a third of the time that a file of tests compiles. The first binary reads them for all.
# clang notes there when the headers were last written to: without that note a fresh clone's is the same file, and ccache
# finds what includes it.
function(ciranda_precompile_test_headers target)
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>")
  get_property(owner GLOBAL PROPERTY CIRANDA_TEST_HEADERS_OF)
  if(owner)
    target_precompile_headers(${target} REUSE_FROM ${owner})
  else()
    set_property(GLOBAL PROPERTY CIRANDA_TEST_HEADERS_OF ${target})
    target_precompile_headers(${target} PRIVATE
      <gtest/gtest.h> <algorithm> <array> <atomic> <chrono> <functional> <random> <span> <string> <thread> <vector>)
  endif()
endfunction()

# ciranda_fuzz_target(<name> [DEPS <layer or target>...] SOURCES <file>...)
#
# One libFuzzer binary <name> with AddressSanitizer and UndefinedBehaviorSanitizer; `make fuzz` finds it by its name
# in build/asan/tests/fuzz, which is why the name must end in _fuzz. What it steers by are its own lines and those of the
# layers in DEPS: to count those of what it never calls takes time, when that is compiled and when it runs.
function(ciranda_fuzz_target name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "DEPS;SOURCES")
  if(NOT name MATCHES "_fuzz$")
    message(FATAL_ERROR "ciranda_fuzz_target: the name ${name} must end in _fuzz")
  endif()
  ciranda_resolve_deps(deps ${ARG_DEPS})
  add_executable(${name} ${ARG_SOURCES})
  ciranda_compile_options(${name})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/cpp)
  target_link_libraries(${name} PRIVATE ${deps})
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer-no-link)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  foreach(layer IN LISTS ARG_DEPS)
    target_compile_options(ciranda_${layer} PRIVATE -fsanitize=fuzzer-no-link)
  endforeach()
endfunction()
