# How every file of the engine is compiled. ciranda_compile_options(<target>) adds the warnings; the rest is global,
# because all objects of one build must agree on it.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Line tables only: enough for a readable stack trace at a tenth of the size of full debug information.
set(CMAKE_C_FLAGS_RELEASE "-O3 -g1 -DNDEBUG")
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -g1 -DNDEBUG")

# gcc clears and copies structs of some hundred bytes by `rep`, whose start takes longer than the stores it saves: of a
# named allreduce of 4 B between two ranks a tenth.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  foreach(strategy -mmemset-strategy=libcall:-1:noalign -mmemcpy-strategy=libcall:-1:noalign)
    string(APPEND CMAKE_CXX_FLAGS_RELEASE " ${strategy}")
  endforeach()
endif()

# What a shared library exports is not replaced by another's: the compiler may inline its calls of itself.
add_compile_options(-fno-semantic-interposition)

# No fused multiply-add behind our back: a result must not depend on the instruction set.
add_compile_options(-ffp-contract=off)

if(CIRANDA_SANITIZE)
  add_compile_options(-fsanitize=${CIRANDA_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${CIRANDA_SANITIZE})
  add_compile_definitions(CIRANDA_SANITIZED)
endif()
if(CIRANDA_BUILD_FUZZERS)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "CIRANDA_BUILD_FUZZERS needs clang: configure with -DCMAKE_CXX_COMPILER=clang++")
  endif()
endif()

function(ciranda_compile_options target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion)
  # gcc warns of the insides of std::string's operator+ and of a moved std::variant, wrongly. clang and the sanitizers
  # look for the real thing.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -Wno-restrict -Wno-maybe-uninitialized -Wno-free-nonheap-object)
  endif()
  if(CIRANDA_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
endfunction()
