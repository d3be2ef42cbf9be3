# Run by ctest, not by CMake: makes one entry of each test suite of a GoogleTest binary. A process for each test instead
# would spend more time on starting, under a sanitizer above all, than on most of the tests.
#
# In: suites_folder, suites_binary, suites_emulator (what runs it, if not this machine), suites_without (a GoogleTest filter of what is not to run), suites_first (suites to start
# before all others), suites_properties.
if(NOT EXISTS "${suites_binary}")
  add_test("${suites_folder}.NOT_BUILT" "${suites_binary}")
  return()
endif()
execute_process(COMMAND ${suites_emulator} "${suites_binary}" --gtest_list_tests "--gtest_filter=*-${suites_without}"
  OUTPUT_VARIABLE listing RESULT_VARIABLE outcome TIMEOUT 60)
if(NOT outcome EQUAL 0)
  message(FATAL_ERROR "${suites_binary} --gtest_list_tests: ${outcome}\n${listing}")
endif()
string(REGEX MATCHALL "[^\n]+" lines "${listing}")
foreach(line IN LISTS lines)
  if(line MATCHES "^([^ ]+)\\.( |$)")  # a suite; its tests follow, indented
    set(suite "${CMAKE_MATCH_1}")
    add_test("${suites_folder}.${suite}" ${suites_emulator} "${suites_binary}" "--gtest_filter=${suite}.*-${suites_without}")
    set_tests_properties("${suites_folder}.${suite}" PROPERTIES ${suites_properties})
    list(FIND suites_first "${suite}" among_first)
    if(NOT among_first EQUAL -1)
      set_tests_properties("${suites_folder}.${suite}" PROPERTIES COST 1000)
    endif()
  endif()
endforeach()
