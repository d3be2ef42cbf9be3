# ciranda_plugin(<name> SOURCES <file>... [EXPORTS <map>])
#
# libciranda_<name>.so in ciranda/lib of the Python package: the native part of a framework's binding. It links neither
# the framework nor Ciranda, whose functions it is given when it is opened (cpp/bindings/native/ciranda/native/plugin.hpp).
# It exports ciranda_*, or what the linker's version script cmake/<map> says, and no name of C++.
add_custom_target(ciranda_plugins)

function(ciranda_plugin name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "EXPORTS" "SOURCES")
  if(NOT ARG_EXPORTS)
    set(ARG_EXPORTS ciranda.map)
  endif()
  set(target ciranda_${name})
  add_library(${target} MODULE ${ARG_SOURCES})
  ciranda_compile_options(${target})
  target_compile_definitions(${target} PRIVATE CIRANDA_USE_TABLE)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/cpp)
  target_link_libraries(${target} PRIVATE ciranda_native)
  target_link_options(${target} PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/${ARG_EXPORTS} -Wl,-Bsymbolic)
  if(NOT CIRANDA_SANITIZE AND NOT CIRANDA_BUILD_FUZZERS)
    target_link_options(${target} PRIVATE -Wl,--no-undefined)
  endif()
  install(TARGETS ${target} LIBRARY DESTINATION ciranda/lib COMPONENT python EXCLUDE_FROM_ALL)
  add_dependencies(ciranda_plugins ${target})
endfunction()
