# ciranda_install_commit(): a file `commit` in the wheel's folder of metadata: the commit that the wheel is built from, with
# a mark if files of the package differ from it. None where the sources are no clone, such as a source distribution.
function(ciranda_install_commit)
  if(NOT EXISTS ${PROJECT_SOURCE_DIR}/.git)
    return()
  endif()
  set(git git -C ${PROJECT_SOURCE_DIR})
  execute_process(COMMAND ${git} rev-parse HEAD
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE is_unknown)
  if(NOT is_unknown EQUAL 0)
    return()
  endif()
  execute_process(COMMAND ${git} diff --quiet HEAD -- cpp src RESULT_VARIABLE is_changed)
  if(NOT is_changed EQUAL 0)
    string(APPEND commit " with changes")
  endif()
  file(WRITE ${PROJECT_BINARY_DIR}/commit "${commit}\n")
  install(FILES ${PROJECT_BINARY_DIR}/commit DESTINATION ${SKBUILD_METADATA_DIR} COMPONENT python EXCLUDE_FROM_ALL)
endfunction()
