# libciranda: every layer in one shared library that exports the C ABI of ciranda/ciranda.h and nothing else, with the
# headers and a CMake package, so that a program needs only find_package(ciranda) and ciranda::ciranda.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(_ciranda_exports ${CMAKE_CURRENT_LIST_DIR}/ciranda.map)

function(ciranda_shared_library)
  add_library(ciranda SHARED $<TARGET_OBJECTS:ciranda_capi>)
  add_library(ciranda::ciranda ALIAS ciranda)
  target_link_libraries(ciranda PRIVATE ciranda_capi)
  target_link_options(ciranda PRIVATE -Wl,--version-script=${_ciranda_exports})
  if(NOT CIRANDA_SANITIZE AND NOT CIRANDA_BUILD_FUZZERS)
    target_link_options(ciranda PRIVATE -Wl,--no-undefined)
  endif()
  target_include_directories(ciranda PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/cpp/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(ciranda INTERFACE cxx_std_20)
  set_target_properties(ciranda PROPERTIES
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}
    LINKER_LANGUAGE CXX
    LINK_DEPENDS ${_ciranda_exports})
endfunction()

function(ciranda_install_library)
  set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ciranda)
  install(TARGETS ciranda EXPORT cirandaTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/cpp/include/ciranda DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    COMPONENT development FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
  install(EXPORT cirandaTargets NAMESPACE ciranda:: DESTINATION ${package_dir} COMPONENT development)
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/cirandaConfig.cmake.in
    ${PROJECT_BINARY_DIR}/cirandaConfig.cmake INSTALL_DESTINATION ${package_dir})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/cirandaConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/cirandaConfig.cmake ${PROJECT_BINARY_DIR}/cirandaConfigVersion.cmake
    DESTINATION ${package_dir} COMPONENT development)
endfunction()
