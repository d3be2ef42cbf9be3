// tables: the enums of ciranda.h are those of the engine's tables, checked here, and their names.
#include "base/dtype.hpp"
#include "base/reduce_op.hpp"
#include "base/status.hpp"
#include "call/op_table.hpp"
#include "ciranda/ciranda.h"
#include "observe/stages.hpp"

namespace ciranda::capi {
namespace {

constexpr bool is_same(auto of_the_abi, auto of_the_table) {
  return static_cast<std::int64_t>(of_the_abi) == static_cast<std::int64_t>(of_the_table);
}

static_assert(is_same(CIRANDA_OK, ErrorKind::kOk));
static_assert(is_same(CIRANDA_INVALID_ARGUMENT, ErrorKind::kInvalidArgument));
static_assert(is_same(CIRANDA_MISMATCH, ErrorKind::kMismatch));
static_assert(is_same(CIRANDA_RANKS_LOST, ErrorKind::kRanksLost));
static_assert(is_same(CIRANDA_TIMEOUT, ErrorKind::kTimeout));
static_assert(is_same(CIRANDA_ABORTED, ErrorKind::kAborted));
static_assert(is_same(CIRANDA_INTERNAL, ErrorKind::kInternal));

static_assert(is_same(CIRANDA_BOOL, DataType::kBool));
static_assert(is_same(CIRANDA_UINT8, DataType::kUInt8));
static_assert(is_same(CIRANDA_UINT16, DataType::kUInt16));
static_assert(is_same(CIRANDA_UINT32, DataType::kUInt32));
static_assert(is_same(CIRANDA_UINT64, DataType::kUInt64));
static_assert(is_same(CIRANDA_INT8, DataType::kInt8));
static_assert(is_same(CIRANDA_INT16, DataType::kInt16));
static_assert(is_same(CIRANDA_INT32, DataType::kInt32));
static_assert(is_same(CIRANDA_INT64, DataType::kInt64));
static_assert(is_same(CIRANDA_FLOAT16, DataType::kFloat16));
static_assert(is_same(CIRANDA_BFLOAT16, DataType::kBFloat16));
static_assert(is_same(CIRANDA_FLOAT32, DataType::kFloat32));
static_assert(is_same(CIRANDA_FLOAT64, DataType::kFloat64));
static_assert(is_same(CIRANDA_COMPLEX64, DataType::kComplex64));
static_assert(is_same(CIRANDA_COMPLEX128, DataType::kComplex128));
static_assert(kNumDataTypes == 15, "a new type needs a constant in ciranda.h");

static_assert(is_same(CIRANDA_AVERAGE, ReduceOp::kAverage));
static_assert(is_same(CIRANDA_SUM, ReduceOp::kSum));
static_assert(is_same(CIRANDA_ADASUM, ReduceOp::kAdasum));
static_assert(is_same(CIRANDA_MIN, ReduceOp::kMin));
static_assert(is_same(CIRANDA_MAX, ReduceOp::kMax));
static_assert(is_same(CIRANDA_PRODUCT, ReduceOp::kProduct));
static_assert(is_same(CIRANDA_BITWISE_AND, ReduceOp::kBitwiseAnd));
static_assert(is_same(CIRANDA_BITWISE_OR, ReduceOp::kBitwiseOr));
static_assert(is_same(CIRANDA_BITWISE_XOR, ReduceOp::kBitwiseXor));
static_assert(is_same(CIRANDA_LOGICAL_AND, ReduceOp::kLogicalAnd));
static_assert(is_same(CIRANDA_LOGICAL_OR, ReduceOp::kLogicalOr));
static_assert(is_same(CIRANDA_LOGICAL_XOR, ReduceOp::kLogicalXor));
static_assert(kNumReduceOps == 12, "a new operator needs a constant in ciranda.h");

static_assert(is_same(CIRANDA_ALLREDUCE, Collective::kAllreduce));
static_assert(is_same(CIRANDA_ALLGATHER, Collective::kAllgather));
static_assert(is_same(CIRANDA_BROADCAST, Collective::kBroadcast));
static_assert(is_same(CIRANDA_BARRIER, Collective::kBarrier));
static_assert(is_same(CIRANDA_REDUCESCATTER, Collective::kReducescatter));
static_assert(is_same(CIRANDA_ALLTOALL, Collective::kAlltoall));
static_assert(is_same(CIRANDA_REDUCE, Collective::kReduce));
static_assert(is_same(CIRANDA_GATHER, Collective::kGather));
static_assert(is_same(CIRANDA_SCATTER, Collective::kScatter));
static_assert(is_same(CIRANDA_TRANSFER, Collective::kTransfer));
static_assert(is_same(CIRANDA_JOIN, Collective::kJoin));
static_assert(is_same(CIRANDA_ADD_PROCESS_SET, Collective::kAddProcessSet));
static_assert(is_same(CIRANDA_REMOVE_PROCESS_SET, Collective::kRemoveProcessSet));
static_assert(is_same(CIRANDA_SCAN, Collective::kScan));
static_assert(kNumCollectives == 15, "a new collective needs a constant in ciranda.h, but for add_lane");

static_assert(is_same(CIRANDA_PATH_NONE, Path::kNone));
static_assert(is_same(CIRANDA_PATH_DIRECT, Path::kDirect));
static_assert(is_same(CIRANDA_PATH_REPEATED, Path::kRepeated));
static_assert(is_same(CIRANDA_PATH_MEMORY, Path::kInMemory));
static_assert(is_same(CIRANDA_PATH_MESSAGES, Path::kByMessages));
static_assert(is_same(CIRANDA_PATH_ALONG, Path::kAlong));
static_assert(is_same(CIRANDA_PATH_PLAN, Path::kPlan));
static_assert(kPaths.size() == 7, "a new path needs a constant in ciranda.h");

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
  switch (status) {
    case CIRANDA_PENDING: return "Pending";
    case CIRANDA_OK: return "OK";
    case CIRANDA_INVALID_ARGUMENT: return "InvalidArgument";
    case CIRANDA_MISMATCH: return "Mismatch";
    case CIRANDA_RANKS_LOST: return "RanksLost";
    case CIRANDA_TIMEOUT: return "Timeout";
    case CIRANDA_ABORTED: return "Aborted";
    case CIRANDA_INTERNAL: return "Internal";
    default: return "unknown";
  }
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
