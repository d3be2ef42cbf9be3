# ciranda_paddle_operators(SOURCES <file>...)
#
# libciranda_paddle.so in ciranda/lib of the Python package: the operators for Paddle's programs, where CIRANDA_PADDLE
# names the package folder of the oldest Paddle, with its headers. What is made with these serves every later version:
# it needs libpaddle.so by its name alone, and so finds the one that is loaded. The flags are those of
# src/ciranda/paddle/_building.py, which makes the same library where Paddle is.
set(CIRANDA_PADDLE_OLDEST 2.6.2)

function(ciranda_paddle_operators)
  cmake_parse_arguments(PARSE_ARGV 0 ARG "" "" "SOURCES")
  if(NOT EXISTS "${CIRANDA_PADDLE}/include/paddle/phi/api/ext/op_meta_info.h")
    message(FATAL_ERROR "CIRANDA_PADDLE=${CIRANDA_PADDLE} has no headers: name the folder of the package paddle")
  endif()
  file(STRINGS "${CIRANDA_PADDLE}/version/__init__.py" version REGEX "^full_version")
  if(NOT version MATCHES "'${CIRANDA_PADDLE_OLDEST}'")
    message(FATAL_ERROR "CIRANDA_PADDLE must be Paddle ${CIRANDA_PADDLE_OLDEST}, the oldest, whose headers serve all: ${version}")
  endif()
  add_library(ciranda_paddle MODULE ${ARG_SOURCES})
  target_compile_definitions(ciranda_paddle PRIVATE PADDLE_WITH_CUSTOM_KERNEL CIRANDA_USE_TABLE)
  target_include_directories(ciranda_paddle PRIVATE ${PROJECT_SOURCE_DIR}/cpp)
  target_include_directories(ciranda_paddle SYSTEM PRIVATE ${CIRANDA_PADDLE}/include ${CIRANDA_PADDLE}/include/third_party)
  target_link_libraries(ciranda_paddle PRIVATE ciranda_native)
  target_link_options(ciranda_paddle PRIVATE -L${CIRANDA_PADDLE}/base -Wl,--no-as-needed -l:libpaddle.so -Wl,-z,now -ldl)
  # The classes of Paddle's exceptions must be those of Paddle, which catches them.
  set_target_properties(ciranda_paddle PROPERTIES CXX_VISIBILITY_PRESET default VISIBILITY_INLINES_HIDDEN OFF)
  target_compile_options(ciranda_paddle PRIVATE -w)
  install(TARGETS ciranda_paddle LIBRARY DESTINATION ciranda/lib COMPONENT python EXCLUDE_FROM_ALL)
  add_dependencies(ciranda_plugins ciranda_paddle)
endfunction()
