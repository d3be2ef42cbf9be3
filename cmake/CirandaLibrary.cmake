# libciranda: every layer in one shared library that exports the C ABI of ciranda/ciranda.h and nothing else, with the
# headers and a CMake package, so that a program needs only find_package(ciranda) and ciranda::ciranda. Where Python's
# extension is built, the same library holds the engine for it (base/exported.hpp).
include(CMakePackageConfigHelpers)
if(SKBUILD)
  # In a wheel everything lies in the package itself; ciranda.get_include() and ciranda.get_cmake_dir() say where.
  set(CMAKE_INSTALL_LIBDIR ciranda/lib)
  set(CMAKE_INSTALL_INCLUDEDIR ciranda/include)
endif()
include(GNUInstallDirs)

set(_ciranda_cmake_folder ${CMAKE_CURRENT_LIST_DIR})

function(ciranda_shared_library)
  # Whole: the extension also calls what the C ABI does not need.
  get_property(layers GLOBAL PROPERTY CIRANDA_LAYERS)
  list(TRANSFORM layers REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE objects)
  add_library(ciranda SHARED ${objects})
  add_library(ciranda::ciranda ALIAS ciranda)
  target_link_libraries(ciranda PRIVATE ciranda_capi)
  set(exports ${_ciranda_cmake_folder}/ciranda.map)
  if(CIRANDA_BUILD_PYTHON)
    set(exports ${PROJECT_BINARY_DIR}/ciranda_wheel.map)
    ciranda_digest_of_sources(digest)
    configure_file(${_ciranda_cmake_folder}/ciranda_wheel.map.in ${exports} @ONLY)
  endif()
  # It calls its own functions, whatever else the process has loaded: two engines never mix.
  target_link_options(ciranda PRIVATE -Wl,--version-script=${exports} -Wl,-Bsymbolic)
  set_property(TARGET ciranda APPEND PROPERTY LINK_DEPENDS ${exports})
  if(NOT CIRANDA_SANITIZE AND NOT CIRANDA_BUILD_FUZZERS)
    target_link_options(ciranda PRIVATE -Wl,--no-undefined -Wl,--gc-sections)
  endif()
  target_include_directories(ciranda PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/cpp/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(ciranda INTERFACE cxx_std_20)
  set_target_properties(ciranda PROPERTIES LINKER_LANGUAGE CXX)
  # A wheel holds no links, and is one version by itself.
  if(NOT SKBUILD)
    set_target_properties(ciranda PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
  endif()
endfunction()

# ciranda_digest_of_sources(<output variable>): tells builds apart whose classes may differ.
function(ciranda_digest_of_sources output)
  file(GLOB_RECURSE sources ${PROJECT_SOURCE_DIR}/cpp/*.hpp ${PROJECT_SOURCE_DIR}/cpp/*.h ${PROJECT_SOURCE_DIR}/cpp/*.cc)
  set(digests ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION})
  foreach(source IN LISTS sources)
    file(SHA256 ${source} digest)
    list(APPEND digests ${digest})
  endforeach()
  string(SHA256 digest "${digests}")
  string(SUBSTRING ${digest} 0 16 digest)
  set(${output} ${digest} PARENT_SCOPE)
endfunction()

function(ciranda_install_library)
  set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ciranda)
  install(TARGETS ciranda EXPORT cirandaTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/cpp/include/ciranda ${PROJECT_SOURCE_DIR}/cpp/bindings/native/ciranda
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
  install(EXPORT cirandaTargets NAMESPACE ciranda:: DESTINATION ${package_dir} COMPONENT development)
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/cirandaConfig.cmake.in
    ${PROJECT_BINARY_DIR}/cirandaConfig.cmake INSTALL_DESTINATION ${package_dir})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/cirandaConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/cirandaConfig.cmake ${PROJECT_BINARY_DIR}/cirandaConfigVersion.cmake
    DESTINATION ${package_dir} COMPONENT development)
endfunction()
