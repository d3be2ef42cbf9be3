# libciranda: every layer in one shared library that exports the C ABI of ciranda/ciranda.h and nothing else, with the
# headers and a CMake package, so that a program needs only find_package(ciranda) and ciranda::ciranda.
include(CMakePackageConfigHelpers)
if(SKBUILD)
  # In a wheel everything lies in the package itself; ciranda.get_include() and ciranda.get_cmake_dir() say where.
  set(CMAKE_INSTALL_LIBDIR ciranda/lib)
  set(CMAKE_INSTALL_INCLUDEDIR ciranda/include)
endif()
include(GNUInstallDirs)

set(_ciranda_exports ${CMAKE_CURRENT_LIST_DIR}/ciranda.map)

# ciranda_hold_engine(<shared library or module> <path>): the engine goes whole into it, behind the C ABI. It calls its
# own functions, whatever else the process has loaded: two engines never mix. <path>: from its folder, when it is
# installed, to that of libciranda_crypto, if there is one.
function(ciranda_hold_engine target path_to_libraries)
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:ciranda_capi>)
  target_link_libraries(${target} PRIVATE ciranda_capi)
  if(CIRANDA_STATIC_OPENSSL)
    set_target_properties(${target} PROPERTIES INSTALL_RPATH "${path_to_libraries}")
  endif()
  target_link_options(${target} PRIVATE -Wl,--version-script=${_ciranda_exports} -Wl,-Bsymbolic)
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${_ciranda_exports})
endfunction()

function(ciranda_shared_library)
  add_library(ciranda SHARED)
  add_library(ciranda::ciranda ALIAS ciranda)
  ciranda_hold_engine(ciranda "$ORIGIN")
  if(NOT CIRANDA_SANITIZE AND NOT CIRANDA_BUILD_FUZZERS)
    target_link_options(ciranda PRIVATE -Wl,--no-undefined)
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

function(ciranda_install_library)
  set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ciranda)
  install(TARGETS ciranda EXPORT cirandaTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
  if(CIRANDA_STATIC_OPENSSL)
    install(TARGETS ciranda_crypto LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
  endif()
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/cpp/include/ciranda ${PROJECT_SOURCE_DIR}/cpp/bindings/native/ciranda
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
  install(EXPORT cirandaTargets NAMESPACE ciranda:: DESTINATION ${package_dir} COMPONENT development)
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/cirandaConfig.cmake.in
    ${PROJECT_BINARY_DIR}/cirandaConfig.cmake INSTALL_DESTINATION ${package_dir})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/cirandaConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/cirandaConfig.cmake ${PROJECT_BINARY_DIR}/cirandaConfigVersion.cmake
    DESTINATION ${package_dir} COMPONENT development)
endfunction()
