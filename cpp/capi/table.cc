// table: the functions of ciranda.h in the order of ciranda/table.h.
#include "ciranda/table.h"

#include "capi/own_table.hpp"
#include "ciranda/ciranda.h"

namespace {

constexpr ciranda_table kTable = {
    sizeof(ciranda_table),
    CIRANDA_ABI_VERSION,
    ciranda_version,
    ciranda_status_name,
    ciranda_dtype_name,
    ciranda_dtype_size,
    ciranda_reduce_op_name,
    ciranda_reduce_op_accepts,
    ciranda_init,
    ciranda_shutdown,
    ciranda_rank,
    ciranda_size,
    ciranda_local_rank,
    ciranda_local_size,
    ciranda_cross_rank,
    ciranda_cross_size,
    ciranda_host_of,
    ciranda_process_set_ranks,
    ciranda_pair,
    ciranda_submit,
    ciranda_run,
    ciranda_wait,
    ciranda_wait_interruptible,
    ciranda_poll,
    ciranda_operation_status,
    ciranda_operation_message,
    ciranda_operation_outputs_count,
    ciranda_operation_output,
    ciranda_operation_value,
    ciranda_operation_release,
    ciranda_current,
    ciranda_context_retain,
    ciranda_context_release,
    ciranda_context_is_open,
    ciranda_contexts_count,
    ciranda_wait_for,
    ciranda_operation_retain,
    ciranda_form_process_set,
    ciranda_allocate,
    ciranda_free,
    ciranda_record_start,
    ciranda_record_read,
    ciranda_record_lost,
    ciranda_record_stop,
    ciranda_operation_call_back,
    ciranda_handle_new,
    ciranda_handle_release,
    ciranda_operation_output_device,
    ciranda_operation_order,
    ciranda_operation_has_ended,
};

}  // namespace

extern "C" const ciranda_table* ciranda_get_table(void) noexcept { return &kTable; }

namespace ciranda::capi {

const ciranda_table& own_table() { return kTable; }

}  // namespace ciranda::capi
