# CIRANDA_HAVE_OPENSSL: whether OpenSSL::Crypto may be linked. A folder then picks a source file by it (x.cc or
# no_x.cc), never an #if.
set(CIRANDA_HAVE_OPENSSL OFF)
if(CIRANDA_WITH_OPENSSL)
  find_package(OpenSSL 3.0 QUIET)
  if(OpenSSL_FOUND)
    set(CIRANDA_HAVE_OPENSSL ON)
  endif()
endif()
message(STATUS "ciranda: OpenSSL ${CIRANDA_HAVE_OPENSSL}")
