// tables: names and sizes of the enums of ciranda.h, whose values the engine's tables have.
#include "base/dtype.hpp"
#include "base/reduce_op.hpp"
#include "base/status.hpp"
#include "ciranda/ciranda.h"

namespace ciranda::capi {
namespace {

const DataTypeInfo* find(ciranda_dtype dtype) {
  if (dtype < 0 || dtype >= static_cast<ciranda_dtype>(kNumDataTypes)) return nullptr;
  return &info(static_cast<DataType>(dtype));
}

const ReduceOpInfo* find_op(ciranda_reduce_op op) {
  if (op < 0 || op >= static_cast<ciranda_reduce_op>(kNumReduceOps)) return nullptr;
  return &info(static_cast<ReduceOp>(op));
}

}  // namespace
}  // namespace ciranda::capi

extern "C" {

uint32_t ciranda_abi_version(void) noexcept { return CIRANDA_ABI_VERSION; }

const char* ciranda_version(void) noexcept { return CIRANDA_VERSION; }

const char* ciranda_status_name(ciranda_status status) noexcept {
  if (status == CIRANDA_PENDING) return "Pending";
  if (status == CIRANDA_OK) return "OK";
  if (status < CIRANDA_OK || status > CIRANDA_INTERNAL) return "unknown";
  return ciranda::to_string(static_cast<ciranda::ErrorKind>(status)).data();  // literals, so they end in a NUL
}

const char* ciranda_dtype_name(ciranda_dtype dtype) noexcept {
  const ciranda::DataTypeInfo* row = ciranda::capi::find(dtype);
  return row == nullptr ? nullptr : row->name.data();  // literals, so they end in a NUL
}

size_t ciranda_dtype_size(ciranda_dtype dtype) noexcept {
  const ciranda::DataTypeInfo* row = ciranda::capi::find(dtype);
  return row == nullptr ? 0 : row->n_bytes;
}

const char* ciranda_reduce_op_name(ciranda_reduce_op op) noexcept {
  const ciranda::ReduceOpInfo* row = ciranda::capi::find_op(op);
  return row == nullptr ? nullptr : row->name.data();  // literals, so they end in a NUL
}

int ciranda_reduce_op_accepts(ciranda_reduce_op op, ciranda_dtype dtype) noexcept {
  const ciranda::ReduceOpInfo* row = ciranda::capi::find_op(op);
  const ciranda::DataTypeInfo* type = ciranda::capi::find(dtype);
  return row != nullptr && type != nullptr && ciranda::accepts(row->op, type->dtype) ? 1 : 0;
}

}  // extern "C"
