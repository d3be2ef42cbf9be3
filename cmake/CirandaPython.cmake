# ciranda_python_module(<name> DEPS <layer or target>... SOURCES <file>...)
#
# The extension ciranda/<name>.abi3.so: one file for every CPython from 3.10 on. nanobind's split mode makes that
# possible: the module holds only its own bindings and finds the interpreter-specific part at run time in the package
# nanobind-backend (a dependency in pyproject.toml). The module holds the engine and exports the C ABI.
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
if(NOT nanobind_DIR)
  execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
    OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
find_package(nanobind 3.1 CONFIG REQUIRED)

function(ciranda_python_module name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "DEPS;SOURCES")
  ciranda_resolve_deps(deps ${ARG_DEPS})
  nanobind_add_module(${name}
    BACKEND_MODULE nanobind_backend
    STABLE_ABI_VERSION 3.10
    NOMINSIZE
    NB_SUPPRESS_WARNINGS
    ${ARG_SOURCES})
  ciranda_compile_options(${name})
  ciranda_compile_together(${name})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/cpp)
  target_link_libraries(${name} PRIVATE ${deps})
  ciranda_hold_engine(${name} "$ORIGIN/lib")
  install(TARGETS ${name} LIBRARY DESTINATION ciranda COMPONENT python EXCLUDE_FROM_ALL)
endfunction()
