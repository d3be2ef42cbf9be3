# ciranda_layer([NAME] <name> [DEPS <layer or target>...] [SOURCES <file>...])
#
# Defines the static library ciranda_<name> from the folder's sources; without SOURCES, a header-only (INTERFACE) one.
# A plain word in DEPS is another layer (base -> ciranda_base); anything with "::" is a target of a package. Headers
# are included relative to cpp/. tools/check_layers.py checks that the arrows of DEPS and of the includes are allowed.
function(ciranda_layer)
  cmake_parse_arguments(PARSE_ARGV 0 ARG "" "NAME" "DEPS;SOURCES")
  set(name ${ARG_NAME})
  if(NOT name)
    list(GET ARG_UNPARSED_ARGUMENTS 0 name)
  endif()
  ciranda_resolve_deps(deps ${ARG_DEPS})
  set(target ciranda_${name})
  if(ARG_SOURCES)
    add_library(${target} STATIC ${ARG_SOURCES})
    set_property(GLOBAL APPEND PROPERTY CIRANDA_LAYERS ${target})
    ciranda_compile_options(${target})
    ciranda_compile_together(${target})
    set(scope PUBLIC)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${target} ${scope} ${PROJECT_SOURCE_DIR}/cpp ${PROJECT_SOURCE_DIR}/cpp/include)
  target_link_libraries(${target} ${scope} ${deps} Threads::Threads)
endfunction()

# ciranda_resolve_deps(<output variable> <layer or target>...): the CMake targets meant by a DEPS list. A layer that
# has no folder yet is left out; tools/check_layers.py catches a misspelt one.
function(ciranda_resolve_deps output)
  set(resolved)
  foreach(dep IN LISTS ARGN)
    if(dep MATCHES "::")
      list(APPEND resolved ${dep})
    else()
      list(APPEND resolved $<TARGET_NAME_IF_EXISTS:ciranda_${dep}>)
    endif()
  endforeach()
  set(${output} ${resolved} PARENT_SCOPE)
endfunction()

# Most of the time that a file of a layer or of its tests compiles goes into the headers that all of them include, so
# eight files are compiled as one, which lets functions be inlined across them too. Two that give one name to different
# things (the compiler says so) are kept apart by SKIP_UNITY_BUILD_INCLUSION.
function(ciranda_compile_together target)
  if(NOT CIRANDA_COMPILE_TOGETHER)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  # What a file names for itself may be named in another; and a class of a type from an anonymous namespace is in no header.
  target_compile_options(${target} PRIVATE -Wno-shadow $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()
