# ciranda_python_module(<name> SOURCES <file>...)
#
# The extension ciranda/<name>.abi3.so: one file for every CPython from 3.10 on. nanobind's split mode makes that
# possible: the module holds only its own bindings and finds the interpreter-specific part at run time in the package
# nanobind-backend (a dependency in pyproject.toml). The engine is in libciranda, which lies beside it.
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
ciranda_refuse_python(${Python_EXECUTABLE})
if(NOT nanobind_DIR)
  execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
    OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
find_package(nanobind 3.1 CONFIG REQUIRED)

function(ciranda_python_module name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "SOURCES")
  nanobind_add_module(${name}
    BACKEND_MODULE nanobind_backend
    STABLE_ABI_VERSION 3.10
    NOMINSIZE
    NB_SUPPRESS_WARNINGS
    ${ARG_SOURCES})
  ciranda_compile_options(${name})
  ciranda_compile_together(${name})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/cpp)
  target_link_libraries(${name} PRIVATE ciranda Threads::Threads)
  # A function that libciranda lacks fails the import, not the first call of it.
  target_link_options(${name} PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/ciranda.map -Wl,-z,now)
  # DT_RPATH precedes LD_LIBRARY_PATH, where the libciranda of a program may be; DT_RUNPATH does not.
  set_target_properties(${name} PROPERTIES INSTALL_RPATH "$ORIGIN/lib")
  target_link_options(${name} PRIVATE -Wl,--disable-new-dtags)
  install(TARGETS ${name} LIBRARY DESTINATION ciranda COMPONENT python EXCLUDE_FROM_ALL)
endfunction()
