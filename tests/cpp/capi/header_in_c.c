/* The header is C, and its structs keep the layout of all versions (on 64-bit machines): a compiled program depends on
 * it.
 */
#include <ciranda/ciranda.h>
#include <ciranda/table.h>

_Static_assert(CIRANDA_ABI_VERSION == 6, "a new version: pin its layout here as well");
_Static_assert(sizeof(void*) != 8 || offsetof(ciranda_tensor, splits) == 32, "version 1 ends here");
_Static_assert(sizeof(void*) != 8 || offsetof(ciranda_tensor, device_type) == 48, "version 5 ends here");
_Static_assert(sizeof(void*) != 8 || sizeof(ciranda_tensor) == 64, "ciranda_tensor");
_Static_assert(sizeof(void*) != 8 || sizeof(ciranda_options) == 32, "ciranda_options");
_Static_assert(sizeof(void*) != 8 || sizeof(ciranda_output) == 32, "ciranda_output");
_Static_assert(sizeof(void*) != 8 || sizeof(ciranda_request) == 152, "ciranda_request");
_Static_assert(sizeof(void*) != 8 || offsetof(ciranda_request, lane) == 96, "version 1 ends here");
_Static_assert(sizeof(void*) != 8 || offsetof(ciranda_request, priority) == 128, "version 2 ends here");
_Static_assert(sizeof(void*) != 8 || offsetof(ciranda_request, binding) == 136, "versions 3 and 4 end here");
_Static_assert(sizeof(void*) != 8 || offsetof(ciranda_request, prescale) == 32, "ciranda_request");
_Static_assert(sizeof(void*) != 8 || offsetof(ciranda_request, name) == 56, "ciranda_request");
_Static_assert(sizeof(void*) != 8 || offsetof(ciranda_request, callback) == 80, "ciranda_request");
_Static_assert(sizeof(void*) != 8 || sizeof(ciranda_record) == 88, "ciranda_record");
_Static_assert(sizeof(void*) != 8 || offsetof(ciranda_record, n_bytes) == 32, "ciranda_record");
_Static_assert(sizeof(void*) != 8 || offsetof(ciranda_table, abi_version) == 8, "ciranda_table");
_Static_assert(sizeof(void*) != 8 || offsetof(ciranda_table, version) == 16, "ciranda_table");
_Static_assert(sizeof(void*) != 8 || offsetof(ciranda_table, submit) == 16 + 17 * 8, "ciranda_table");
_Static_assert(sizeof(void*) != 8 || offsetof(ciranda_table, current) == 16 + 28 * 8, "version 4 ends here");

/* A compiled program has the numbers in it. */
_Static_assert(CIRANDA_PENDING == -1 && CIRANDA_OK == 0 && CIRANDA_INVALID_ARGUMENT == 1 && CIRANDA_MISMATCH == 2 &&
                   CIRANDA_RANKS_LOST == 3 && CIRANDA_TIMEOUT == 4 && CIRANDA_ABORTED == 5 && CIRANDA_INTERNAL == 6,
               "ciranda_status");
_Static_assert(CIRANDA_BOOL == 0 && CIRANDA_UINT8 == 1 && CIRANDA_UINT16 == 2 && CIRANDA_UINT32 == 3 &&
                   CIRANDA_UINT64 == 4 && CIRANDA_INT8 == 5 && CIRANDA_INT16 == 6 && CIRANDA_INT32 == 7 &&
                   CIRANDA_INT64 == 8 && CIRANDA_FLOAT16 == 9 && CIRANDA_BFLOAT16 == 10 && CIRANDA_FLOAT32 == 11 &&
                   CIRANDA_FLOAT64 == 12 && CIRANDA_COMPLEX64 == 13 && CIRANDA_COMPLEX128 == 14,
               "ciranda_dtype");
_Static_assert(CIRANDA_AVERAGE == 0 && CIRANDA_SUM == 1 && CIRANDA_ADASUM == 2 && CIRANDA_MIN == 3 &&
                   CIRANDA_MAX == 4 && CIRANDA_PRODUCT == 5 && CIRANDA_BITWISE_AND == 6 && CIRANDA_BITWISE_OR == 7 &&
                   CIRANDA_BITWISE_XOR == 8 && CIRANDA_LOGICAL_AND == 9 && CIRANDA_LOGICAL_OR == 10 &&
                   CIRANDA_LOGICAL_XOR == 11,
               "ciranda_reduce_op");
_Static_assert(CIRANDA_ALLREDUCE == 0 && CIRANDA_ALLGATHER == 1 && CIRANDA_BROADCAST == 2 && CIRANDA_BARRIER == 3 &&
                   CIRANDA_REDUCESCATTER == 4 && CIRANDA_ALLTOALL == 5 && CIRANDA_REDUCE == 6 && CIRANDA_GATHER == 7 &&
                   CIRANDA_SCATTER == 8 && CIRANDA_TRANSFER == 9 && CIRANDA_JOIN == 10 &&
                   CIRANDA_ADD_PROCESS_SET == 11 && CIRANDA_REMOVE_PROCESS_SET == 12 && CIRANDA_SCAN == 14,
               "ciranda_collective");
_Static_assert(CIRANDA_PATH_NONE == 0 && CIRANDA_PATH_DIRECT == 1 && CIRANDA_PATH_REPEATED == 2 &&
                   CIRANDA_PATH_MEMORY == 3 && CIRANDA_PATH_MESSAGES == 4 && CIRANDA_PATH_ALONG == 5 &&
                   CIRANDA_PATH_PLAN == 6,
               "ciranda_path");
_Static_assert(CIRANDA_REQUEST_DEFERRABLE == 1 && CIRANDA_REQUEST_AWAITED == 2 && CIRANDA_REQUEST_DIVIDE_BY_ALL == 4 &&
                   CIRANDA_REQUEST_HAS_ROOM == 8 && CIRANDA_REQUEST_DIRECT_CALLBACK == 16 &&
                   CIRANDA_REQUEST_NEEDS_ALL == 32,
               "flags");

ciranda_request request_initialised_in_c(void);
ciranda_request request_initialised_in_c(void) {
  const ciranda_request request = CIRANDA_REQUEST_INIT;
  return request;
}
