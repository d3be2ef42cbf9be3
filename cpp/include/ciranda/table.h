/* table.h: the functions of ciranda.h as a table, for a library that is loaded into a process with an engine.
 *
 * A binding of a framework must not link libciranda: that would be a second engine, which shares no world with the
 * engine of `import ciranda` or of another binding. Instead, the binding gets the table of the process's engine, and
 * calls the engine through it. In one file of the binding:
 *
 *   #define CIRANDA_USE_TABLE
 *   #include <ciranda/table.h>
 *   CIRANDA_DEFINE_TABLE
 *
 * In the other files: the first two lines (or -DCIRANDA_USE_TABLE for all). Once ciranda_use_table() has accepted a
 * table, ciranda_submit() and all other names of ciranda.h, and of ciranda.hpp if included after this header, call the
 * functions of the table. Sources of the table:
 *
 *   Python: `ciranda.get_c_table()`, a capsule of the name CIRANDA_TABLE_CAPSULE; `ciranda.get_c_table_address()`, its
 *           address as a number, for ctypes.
 *   C:      ciranda_get_table(), of libciranda or of the file of ciranda._core, by dlsym().
 *
 * Called by bindings/, by other_engines.cc, which compares the tables of all copies in the process, and by libraries of
 * others that bind a framework or a language; the table is made in capi/. Threads: as of the functions.
 *
 * Versions: functions are only ever added, at the end, which raises CIRANDA_ABI_VERSION. A binding runs with every
 * engine whose version is at least that of the headers it was compiled with; ciranda_use_table() refuses others.
 */
#ifndef CIRANDA_TABLE_H_
#define CIRANDA_TABLE_H_

#include <ciranda/ciranda.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define CIRANDA_TABLE_CAPSULE "ciranda._core.TABLE"

#ifdef __cplusplus
extern "C" {
#endif

/* Each function is described in ciranda.h. */
/* clang-format off */
typedef struct ciranda_table {
  size_t struct_size;
  uint32_t abi_version;
  const char* (*version)(void) CIRANDA_NOEXCEPT;
  const char* (*status_name)(ciranda_status status) CIRANDA_NOEXCEPT;
  const char* (*dtype_name)(ciranda_dtype dtype) CIRANDA_NOEXCEPT;
  size_t (*dtype_size)(ciranda_dtype dtype) CIRANDA_NOEXCEPT;
  const char* (*reduce_op_name)(ciranda_reduce_op op) CIRANDA_NOEXCEPT;
  int (*reduce_op_accepts)(ciranda_reduce_op op, ciranda_dtype dtype) CIRANDA_NOEXCEPT;
  ciranda_status (*init)(const ciranda_options* options, ciranda_context** context, char* message,
                         size_t message_capacity) CIRANDA_NOEXCEPT;
  ciranda_status (*shutdown)(ciranda_context* context) CIRANDA_NOEXCEPT;
  int32_t (*rank)(const ciranda_context* context) CIRANDA_NOEXCEPT;
  int32_t (*size)(const ciranda_context* context) CIRANDA_NOEXCEPT;
  int32_t (*local_rank)(const ciranda_context* context) CIRANDA_NOEXCEPT;
  int32_t (*local_size)(const ciranda_context* context) CIRANDA_NOEXCEPT;
  int32_t (*cross_rank)(const ciranda_context* context) CIRANDA_NOEXCEPT;
  int32_t (*cross_size)(const ciranda_context* context) CIRANDA_NOEXCEPT;
  const char* (*host_of)(const ciranda_context* context, int32_t rank) CIRANDA_NOEXCEPT;
  size_t (*process_set_ranks)(const ciranda_context* context, uint32_t process_set, int32_t* ranks,
                              size_t capacity) CIRANDA_NOEXCEPT;
  uint32_t (*pair)(const ciranda_context* context, int32_t peer) CIRANDA_NOEXCEPT;
  ciranda_status (*submit)(ciranda_context* context, const ciranda_request* request,
                           ciranda_operation** operation) CIRANDA_NOEXCEPT;
  ciranda_status (*run)(ciranda_context* context, const ciranda_request* request,
                        ciranda_operation** operation) CIRANDA_NOEXCEPT;
  ciranda_status (*wait)(ciranda_operation* operation) CIRANDA_NOEXCEPT;
  ciranda_status (*wait_interruptible)(ciranda_operation* operation, int (*give_up)(void* user_data),
                                       void* user_data) CIRANDA_NOEXCEPT;
  int (*poll)(ciranda_operation* operation) CIRANDA_NOEXCEPT;
  ciranda_status (*operation_status)(const ciranda_operation* operation) CIRANDA_NOEXCEPT;
  const char* (*operation_message)(const ciranda_operation* operation) CIRANDA_NOEXCEPT;
  size_t (*operation_outputs_count)(const ciranda_operation* operation) CIRANDA_NOEXCEPT;
  ciranda_status (*operation_output)(const ciranda_operation* operation, size_t index,
                                     ciranda_output* output) CIRANDA_NOEXCEPT;
  int64_t (*operation_value)(const ciranda_operation* operation) CIRANDA_NOEXCEPT;
  void (*operation_release)(ciranda_operation* operation) CIRANDA_NOEXCEPT;
  /* Since version 5. */
  ciranda_context* (*current)(void) CIRANDA_NOEXCEPT;
  void (*context_retain)(ciranda_context* context) CIRANDA_NOEXCEPT;
  void (*context_release)(ciranda_context* context) CIRANDA_NOEXCEPT;
  int (*context_is_open)(const ciranda_context* context) CIRANDA_NOEXCEPT;
  size_t (*contexts_count)(void) CIRANDA_NOEXCEPT;
  ciranda_status (*wait_for)(ciranda_operation* operation, double seconds) CIRANDA_NOEXCEPT;
  ciranda_operation* (*operation_retain)(const ciranda_operation* operation) CIRANDA_NOEXCEPT;
  ciranda_status (*form_process_set)(ciranda_context* context, const int32_t* ranks, size_t ranks_count, uint32_t nth,
                                     uint32_t* process_set, char* message, size_t message_capacity) CIRANDA_NOEXCEPT;
  ciranda_status (*allocate)(ciranda_context* context, size_t n_bytes, void** memory, int* is_shared, char* message,
                             size_t message_capacity) CIRANDA_NOEXCEPT;
  void (*free)(void* memory) CIRANDA_NOEXCEPT;
  ciranda_status (*record_start)(ciranda_context* context, ciranda_recording** recording) CIRANDA_NOEXCEPT;
  size_t (*record_read)(ciranda_recording* recording, ciranda_record* records, size_t record_struct_size,
                        size_t capacity) CIRANDA_NOEXCEPT;
  uint64_t (*record_lost)(const ciranda_recording* recording) CIRANDA_NOEXCEPT;
  void (*record_stop)(ciranda_recording* recording) CIRANDA_NOEXCEPT;
  ciranda_status (*operation_call_back)(ciranda_operation* operation, ciranda_callback callback,
                                        void* user_data) CIRANDA_NOEXCEPT;
  ciranda_handle* (*handle_new)(void) CIRANDA_NOEXCEPT;
  void (*handle_release)(ciranda_handle* handle) CIRANDA_NOEXCEPT;
  /* Since version 6. */
  ciranda_status (*operation_output_device)(const ciranda_operation* operation, size_t index, int32_t* device_type,
                                            int32_t* device) CIRANDA_NOEXCEPT;
  ciranda_status (*operation_order)(const ciranda_operation* operation, int32_t device_type, int32_t device,
                                    void* stream) CIRANDA_NOEXCEPT;
  int (*operation_has_ended)(const ciranda_operation* operation) CIRANDA_NOEXCEPT;
} ciranda_table;
/* clang-format on */

/* The table of this copy of the library. Lives for ever. */
CIRANDA_API const ciranda_table* ciranda_get_table(void) CIRANDA_NOEXCEPT;

#ifdef __cplusplus
}
#endif

/* CIRANDA_OK if code that was compiled with these headers can call by `table`. Otherwise CIRANDA_INVALID_ARGUMENT, and
 * `message`, if not NULL, holds the reason, cut to message_capacity bytes including the final NUL. */
static inline ciranda_status ciranda_check_table(const ciranda_table* table, char* message, size_t message_capacity) {
  const int has_room = message != NULL && message_capacity > 0;
  if (has_room) message[0] = '\0';
  if (table != NULL && table->struct_size >= sizeof(ciranda_table) && table->abi_version >= CIRANDA_ABI_VERSION) {
    return CIRANDA_OK;
  }
  if (has_room && table == NULL) {
    snprintf(message, message_capacity, "there is no table of ciranda's functions (NULL)");
  } else if (has_room) {
    snprintf(message, message_capacity,
             "this binding was compiled with version %d of ciranda's C headers, but the engine in this process has "
             "version %u (its table has %zu bytes, not %zu): install a newer ciranda, or compile the binding with the "
             "headers of the one that is installed",
             CIRANDA_ABI_VERSION, (unsigned)table->abi_version, table->struct_size, sizeof(ciranda_table));
  }
  return CIRANDA_INVALID_ARGUMENT;
}

#ifdef CIRANDA_USE_TABLE

/* The table of this shared library. NULL, and not usable, until ciranda_use_table() has returned CIRANDA_OK. */
#ifdef __cplusplus
extern "C"
#else
extern
#endif
    __attribute__((visibility("hidden"))) const ciranda_table* ciranda_table_in_use;
#define CIRANDA_DEFINE_TABLE const ciranda_table* ciranda_table_in_use = NULL;

/* Makes all names of ciranda.h mean the functions of `table`, unless ciranda_check_table() refuses it. */
static inline ciranda_status ciranda_use_table(const ciranda_table* table, char* message, size_t message_capacity) {
  const ciranda_status status = ciranda_check_table(table, message, message_capacity);
  if (status == CIRANDA_OK) ciranda_table_in_use = table;
  return status;
}

#define ciranda_abi_version() (ciranda_table_in_use->abi_version)
#define ciranda_version (ciranda_table_in_use->version)
#define ciranda_status_name (ciranda_table_in_use->status_name)
#define ciranda_dtype_name (ciranda_table_in_use->dtype_name)
#define ciranda_dtype_size (ciranda_table_in_use->dtype_size)
#define ciranda_reduce_op_name (ciranda_table_in_use->reduce_op_name)
#define ciranda_reduce_op_accepts (ciranda_table_in_use->reduce_op_accepts)
#define ciranda_init (ciranda_table_in_use->init)
#define ciranda_shutdown (ciranda_table_in_use->shutdown)
#define ciranda_rank (ciranda_table_in_use->rank)
#define ciranda_size (ciranda_table_in_use->size)
#define ciranda_local_rank (ciranda_table_in_use->local_rank)
#define ciranda_local_size (ciranda_table_in_use->local_size)
#define ciranda_cross_rank (ciranda_table_in_use->cross_rank)
#define ciranda_cross_size (ciranda_table_in_use->cross_size)
#define ciranda_host_of (ciranda_table_in_use->host_of)
#define ciranda_process_set_ranks (ciranda_table_in_use->process_set_ranks)
#define ciranda_pair (ciranda_table_in_use->pair)
#define ciranda_submit (ciranda_table_in_use->submit)
#define ciranda_run (ciranda_table_in_use->run)
#define ciranda_wait (ciranda_table_in_use->wait)
#define ciranda_wait_interruptible (ciranda_table_in_use->wait_interruptible)
#define ciranda_poll (ciranda_table_in_use->poll)
#define ciranda_operation_status (ciranda_table_in_use->operation_status)
#define ciranda_operation_message (ciranda_table_in_use->operation_message)
#define ciranda_operation_outputs_count (ciranda_table_in_use->operation_outputs_count)
#define ciranda_operation_output (ciranda_table_in_use->operation_output)
#define ciranda_operation_value (ciranda_table_in_use->operation_value)
#define ciranda_operation_release (ciranda_table_in_use->operation_release)
#define ciranda_current (ciranda_table_in_use->current)
#define ciranda_context_retain (ciranda_table_in_use->context_retain)
#define ciranda_context_release (ciranda_table_in_use->context_release)
#define ciranda_context_is_open (ciranda_table_in_use->context_is_open)
#define ciranda_contexts_count (ciranda_table_in_use->contexts_count)
#define ciranda_wait_for (ciranda_table_in_use->wait_for)
#define ciranda_operation_retain (ciranda_table_in_use->operation_retain)
#define ciranda_form_process_set (ciranda_table_in_use->form_process_set)
#define ciranda_allocate (ciranda_table_in_use->allocate)
#define ciranda_free (ciranda_table_in_use->free)
#define ciranda_record_start (ciranda_table_in_use->record_start)
#define ciranda_record_read (ciranda_table_in_use->record_read)
#define ciranda_record_lost (ciranda_table_in_use->record_lost)
#define ciranda_record_stop (ciranda_table_in_use->record_stop)
#define ciranda_operation_call_back (ciranda_table_in_use->operation_call_back)
#define ciranda_handle_new (ciranda_table_in_use->handle_new)
#define ciranda_handle_release (ciranda_table_in_use->handle_release)
#define ciranda_operation_output_device (ciranda_table_in_use->operation_output_device)
#define ciranda_operation_order (ciranda_table_in_use->operation_order)
#define ciranda_operation_has_ended (ciranda_table_in_use->operation_has_ended)

#endif /* CIRANDA_USE_TABLE */

#endif /* CIRANDA_TABLE_H_ */
