# ciranda_install_sbom(): ciranda.cdx.json in the wheel's folder of metadata (PEP 770): what of others is linked into its
# libraries, in the versions of this build, as CycloneDX. tools/check_sbom.py checks it.
function(ciranda_install_sbom)
  set(own pkg:pypi/ciranda@${PROJECT_VERSION})
  set(sbom [[{"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "metadata": {}, "components": []}]])
  ciranda_sbom_component(component ciranda ${PROJECT_VERSION} Apache-2.0 ${own})
  string(JSON sbom SET "${sbom}" metadata component "${component}")
  string(JSON sbom SET "${sbom}" dependencies "[{\"ref\": \"${own}\", \"dependsOn\": []}]")
  if(CIRANDA_STATIC_OPENSSL)
    ciranda_sbom_add(sbom openssl ${CIRANDA_OPENSSL_VERSION} Apache-2.0 generic)
  endif()
  ciranda_sbom_add(sbom nanobind ${nanobind_VERSION} BSD-3-Clause pypi)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # parts of libstdc++ and libgcc
    ciranda_sbom_add(sbom gcc ${CMAKE_CXX_COMPILER_VERSION} "GPL-3.0-or-later WITH GCC-exception-3.1" generic)
  endif()
  file(WRITE ${PROJECT_BINARY_DIR}/ciranda.cdx.json "${sbom}\n")
  install(FILES ${PROJECT_BINARY_DIR}/ciranda.cdx.json
    DESTINATION ${SKBUILD_METADATA_DIR}/sboms COMPONENT python EXCLUDE_FROM_ALL)
endfunction()

# ciranda_sbom_component(<output variable> <name> <version> <license> <package URL>)
function(ciranda_sbom_component output name version license purl)
  set(${output} "{\"type\": \"library\", \"bom-ref\": \"${purl}\", \"name\": \"${name}\", \"version\": \"${version}\",
    \"licenses\": [{\"expression\": \"${license}\"}], \"purl\": \"${purl}\"}" PARENT_SCOPE)
endfunction()

# ciranda_sbom_add(<variable> <name> <version> <license> <kind of package URL>): something that is linked in.
function(ciranda_sbom_add variable name version license kind)
  set(purl pkg:${kind}/${name}@${version})
  set(sbom "${${variable}}")
  ciranda_sbom_component(component ${name} ${version} "${license}" ${purl})
  string(JSON n LENGTH "${sbom}" components)
  string(JSON sbom SET "${sbom}" components ${n} "${component}")
  string(JSON sbom SET "${sbom}" dependencies 0 dependsOn ${n} "\"${purl}\"")
  set(${variable} "${sbom}" PARENT_SCOPE)
endfunction()
