#include "backend/cuda/kernels/launches.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <initializer_list>
#include <string_view>

namespace ciranda::cuda {
namespace {

constexpr bool is_scalable(TypeClass type_class) {
  return type_class == TypeClass::kFloating || type_class == TypeClass::kComplex;
}

constexpr bool is_integer(TypeClass type_class) { return kIntegers.contains(type_class); }

// The type of a complex number's parts, or the type itself.
constexpr DataType part_of(DataType dtype) {
  const DataTypeInfo& type = info(dtype);
  if (type.type_class != TypeClass::kComplex) return dtype;
  for (const DataTypeInfo& row : kDataTypes) {
    // float16 and bfloat16 are half as large as any part.
    if (row.type_class == TypeClass::kFloating && row.n_bytes * 2 == type.n_bytes) return row.dtype;
  }
  return dtype;
}

constexpr bool is_made_of(std::string_view name, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) {
    if (!name.starts_with(part)) return false;
    name.remove_prefix(part.size());
  }
  return name.empty();
}

constexpr Kernel kernel_named(std::initializer_list<std::string_view> parts) {
  for (std::size_t i = 0; i < kNumKernels; ++i) {
    if (is_made_of(kKernelNames[i], parts)) return static_cast<Kernel>(i);
  }
  throw "no such kernel";  // reached at compile time only, where it is an error
}

// "reduce_sum_" + the type, without factors of integers.
constexpr Kernel find_reduce_kernel(ReduceOp op, DataType dtype) {
  const DataTypeInfo& type = info(dtype);
  if (dtype == DataType::kBool) {
    const bool is_and = op == ReduceOp::kMin || op == ReduceOp::kLogicalAnd;
    if (op == ReduceOp::kLogicalXor) return Kernel::reduce_logical_xor;
    return is_and ? Kernel::reduce_logical_and : Kernel::reduce_logical_or;
  }
  if (op == ReduceOp::kBitwiseAnd || op == ReduceOp::kBitwiseOr || op == ReduceOp::kBitwiseXor) {
    return kernel_named({"reduce_", to_string(op)});
  }
  const ReduceOp computed = op == ReduceOp::kAverage ? ReduceOp::kSum : op;
  const bool wraps = computed == ReduceOp::kSum || computed == ReduceOp::kProduct;
  const bool is_unsigned_alike = wraps && type.type_class == TypeClass::kSigned;  // the same bits
  const DataType computed_type = computed == ReduceOp::kProduct ? dtype : part_of(dtype);
  return kernel_named({"reduce_", to_string(computed), "_", is_unsigned_alike ? "u" : "", to_string(computed_type)});
}

constexpr bool has_kernel(ReduceOp op, DataType dtype) { return accepts(op, dtype) && info(op).is_elementwise; }

using KernelOfType = std::array<Kernel, kNumDataTypes>;

consteval std::array<KernelOfType, kNumReduceOps> make_reduce_kernels() {
  std::array<KernelOfType, kNumReduceOps> kernels{};
  for (const ReduceOpInfo& op : kReduceOps) {
    for (const DataTypeInfo& type : kDataTypes) {
      if (!has_kernel(op.op, type.dtype)) continue;
      kernels[static_cast<std::size_t>(op.op)][static_cast<std::size_t>(type.dtype)] =
          find_reduce_kernel(op.op, type.dtype);
    }
  }
  return kernels;
}
constexpr auto kReduceKernels = make_reduce_kernels();

// If n is a power of two, a multiplication by 1/n, which is exact, gives the same bits as the division, and is faster.
Scaling float_scaling(const Reduction& reduction) {
  const auto n = static_cast<unsigned>(reduction.op == ReduceOp::kAverage ? reduction.n_average : 1);
  if (std::has_single_bit(n) && reduction.postscale == 1.0) return {reduction.prescale, 1.0, 1.0 / n};
  return {reduction.prescale, static_cast<double>(n), reduction.postscale};
}

IntegerOp integer_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kAverage: return IntegerOp::kAverage;
    case ReduceOp::kProduct: return IntegerOp::kProduct;
    case ReduceOp::kMin: return IntegerOp::kMin;
    case ReduceOp::kMax: return IntegerOp::kMax;
    default: return IntegerOp::kSum;
  }
}

IntegerTask integer_task(const Reduction& reduction) {
  const DataTypeInfo& type = info(reduction.dtype);
  const bool is_signed = type.type_class == TypeClass::kSigned;
  return {integer_op(reduction.op), static_cast<std::uint16_t>(type.n_bytes),
          static_cast<std::uint16_t>(is_signed ? 1 : 0)};
}

Scaling integer_scaling(const Reduction& reduction) {
  return {reduction.prescale, static_cast<double>(reduction.n_average), reduction.postscale};
}

// So many are resident at once, unless a kernel needs more than 64 registers. More would leave a second, incomplete
// wave.
constexpr std::uint32_t kBlocksOfMultiprocessor = 4;

}  // namespace

bool is_unscaled(const Reduction& reduction) {
  if (reduction.dtype == DataType::kBool) return true;
  const bool divides = reduction.op == ReduceOp::kAverage && reduction.n_average != 1;
  return reduction.weights.empty() && reduction.prescale == 1.0 && reduction.postscale == 1.0 && !divides;
}

ReduceLaunch make_reduce(const Reduction& reduction, std::span<const std::byte* const> inputs, std::byte* out,
                         std::size_t count) {
  const DataType dtype = reduction.dtype;
  ReduceLaunch launch{kReduceKernels[static_cast<std::size_t>(reduction.op)][static_cast<std::size_t>(dtype)], {}};
  ReduceArguments& arguments = launch.arguments;
  std::copy(inputs.begin(), inputs.end(), arguments.inputs);
  arguments.n_inputs = static_cast<std::uint32_t>(inputs.size());
  arguments.out = out;
  arguments.n_bytes = count * size_of(dtype);
  arguments.scaling = {1.0, 1.0, 1.0};
  if (is_unscaled(reduction)) {
    // One input is copied as it is; all operators on bits do that.
    if (inputs.size() == 1) launch.kernel = Kernel::reduce_bitwise_or;
    return launch;
  }
  if (is_integer(info(dtype).type_class)) {
    launch.kernel = Kernel::reduce_scaled_integers;
    arguments.integers = integer_task(reduction);
    arguments.scaling = integer_scaling(reduction);
    return launch;
  }
  arguments.scaling = float_scaling(reduction);
  arguments.is_weighted = reduction.weights.empty() ? 0 : 1;
  std::copy(reduction.weights.begin(), reduction.weights.end(), arguments.weights);
  return launch;
}

std::uint64_t number_chunks(std::span<Piece> pieces, std::uint64_t chunk_bytes) {
  std::uint64_t n_chunks = 0;
  for (Piece& piece : pieces) {
    piece.first_chunk = n_chunks;
    n_chunks += (piece.n_bytes + chunk_bytes - 1) / chunk_bytes;
  }
  return n_chunks;
}

std::uint32_t blocks_for_chunks(std::uint64_t n_chunks, int n_multiprocessors) {
  const std::uint64_t most = static_cast<std::uint64_t>(n_multiprocessors) * kBlocksOfMultiprocessor;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(n_chunks, 1, most));
}

std::uint32_t blocks_for_bytes(std::uint64_t n_bytes, int n_multiprocessors) {
  constexpr std::uint64_t kBytesOfBlock = 16 * kMostThreads;  // a vector for each thread
  return blocks_for_chunks((n_bytes + kBytesOfBlock - 1) / kBytesOfBlock, n_multiprocessors);
}

}  // namespace ciranda::cuda
