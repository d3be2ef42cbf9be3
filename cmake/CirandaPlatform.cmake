# Refuses what the engine does not run on as CMake configures, with what there is instead. `pip install` finds no wheel
# for such a system, and compiles the sources: without this, for minutes, until some header is missing.

# Before project(), which looks for a compiler.
function(ciranda_refuse_system)
  if(NOT CMAKE_HOST_LINUX)
    message(FATAL_ERROR "Ciranda runs on Linux only. On macOS and Windows, use a container: packaging/docker/Dockerfile "
      "makes an image for x86-64 and ARM.")
  endif()
endfunction()

# After project(): what the compiler compiles for.
function(ciranda_refuse_target)
  if(NOT CMAKE_SIZEOF_VOID_P EQUAL 8)
    message(FATAL_ERROR "Ciranda needs a processor of 64 bits: ${CMAKE_CXX_COMPILER} compiles for "
      "${CMAKE_SIZEOF_VOID_P} bytes an address.")
  endif()
  if(NOT DEFINED CIRANDA_HAS_GLIBC)
    include(CheckSymbolExists)
    check_symbol_exists(__GLIBC__ features.h CIRANDA_HAS_GLIBC)
  endif()
  if(NOT CIRANDA_HAS_GLIBC)
    message(FATAL_ERROR "Ciranda needs glibc, 2.28 or newer, which this system (musl?) does not have. Use an image of a "
      "distribution with glibc, such as python:3.13-slim instead of python:3.13-alpine.")
  endif()
endfunction()

# ciranda_refuse_python(<interpreter>)
function(ciranda_refuse_python interpreter)
  execute_process(COMMAND ${interpreter} -c "import sysconfig; print(sysconfig.get_config_var('Py_GIL_DISABLED') or 0)"
    OUTPUT_VARIABLE is_free_threaded OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  if(is_free_threaded)
    message(FATAL_ERROR "Ciranda does not run on free-threaded Python (${interpreter}) yet: use the ordinary build of the "
      "same version, such as python3.14 instead of python3.14t.")
  endif()
endfunction()
