# Every switch of the build, with its default. A wheel build (SKBUILD is set by scikit-build-core) makes the Python
# extension and nothing else; any other build makes the library and its tests.
if(SKBUILD)
  set(_ciranda_wheel ON)
  set(_ciranda_tree OFF)
else()
  set(_ciranda_wheel OFF)
  set(_ciranda_tree ${PROJECT_IS_TOP_LEVEL})
endif()

option(CIRANDA_BUILD_PYTHON "Build the Python extension ciranda._core" ${_ciranda_wheel})
option(CIRANDA_BUILD_TESTS "Build the C++ tests (needs GoogleTest)" ${_ciranda_tree})
option(CIRANDA_BUILD_BENCHMARKS "Build the C++ benchmarks (needs google-benchmark)" OFF)
option(CIRANDA_BUILD_FUZZERS "Build the libFuzzer targets (needs clang)" OFF)
option(CIRANDA_WITH_OPENSSL "Use OpenSSL where it is found" ${_ciranda_tree})
option(CIRANDA_WERROR "Treat warnings as errors" ON)
set(CIRANDA_SANITIZE "" CACHE STRING "Comma-separated sanitizers: address,undefined or thread")
set_property(CACHE CIRANDA_SANITIZE PROPERTY STRINGS "" "address,undefined" "thread")
set(CIRANDA_TESTS_LEFT_OUT "" CACHE STRING "C++ tests that ctest is not to run: GoogleTest patterns, by colon")
set(CIRANDA_SUITES_LEFT_OUT "" CACHE STRING "Folders of tests/cpp whose tests are not even built")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Type of build" FORCE)
endif()
