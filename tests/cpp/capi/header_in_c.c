/* The header is C, and its structs keep the layout of all versions (on 64-bit machines): a compiled program depends on
 * it.
 */
#include <ciranda/ciranda.h>

_Static_assert(CIRANDA_ABI_VERSION == 2, "a new version: pin its layout here as well");
_Static_assert(sizeof(void*) != 8 || offsetof(ciranda_tensor, splits) == 32, "version 1 ends here");
_Static_assert(sizeof(void*) != 8 || sizeof(ciranda_tensor) == 48, "ciranda_tensor");
_Static_assert(sizeof(void*) != 8 || sizeof(ciranda_options) == 32, "ciranda_options");
_Static_assert(sizeof(void*) != 8 || sizeof(ciranda_output) == 32, "ciranda_output");
_Static_assert(sizeof(void*) != 8 || sizeof(ciranda_request) == 128, "ciranda_request");
_Static_assert(sizeof(void*) != 8 || offsetof(ciranda_request, lane) == 96, "version 1 ends here");
_Static_assert(sizeof(void*) != 8 || offsetof(ciranda_request, prescale) == 32, "ciranda_request");
_Static_assert(sizeof(void*) != 8 || offsetof(ciranda_request, name) == 56, "ciranda_request");
_Static_assert(sizeof(void*) != 8 || offsetof(ciranda_request, callback) == 80, "ciranda_request");

ciranda_request request_initialised_in_c(void);
ciranda_request request_initialised_in_c(void) {
  const ciranda_request request = CIRANDA_REQUEST_INIT;
  return request;
}
