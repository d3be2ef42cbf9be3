#include "kernels/kernels.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cassert>

#include "base/copy_bytes.hpp"
#include "kernels/cpu.hpp"
#include "kernels/level.hpp"
#include "kernels/scaled_integers.hpp"

namespace ciranda::kernels {
namespace {

// The only process-wide state: the SIMD level in use. It never changes a result.
std::atomic<SimdLevel>& active_level() {
  static std::atomic<SimdLevel> level{best_simd_level()};
  return level;
}

struct ResultFactors {
  double divisor;
  double postscale;
};

// An average is a sum with a divisor. If n is a power of two, a multiplication by 1/n, which is exact, gives the same
// bits as the division, and is faster.
ResultFactors result_factors(const Reduction& reduction) {
  if (reduction.op != ReduceOp::kAverage) return {1.0, reduction.postscale};
  const auto n = static_cast<unsigned>(reduction.n_average);
  if (std::has_single_bit(n) && reduction.postscale == 1.0) return {1.0, 1.0 / n};
  return {static_cast<double>(n), reduction.postscale};
}

// True if no factor, weight or divisor applies. Factors do not apply to bool.
bool is_unscaled(const Reduction& reduction, TypeClass type_class) {
  if (type_class == TypeClass::kBoolean) return true;
  if (!reduction.weights.empty()) return false;
  const bool divides = reduction.op == ReduceOp::kAverage && reduction.n_average != 1;
  return reduction.prescale == 1.0 && reduction.postscale == 1.0 && !divides;
}

// The operator of the vectorised kernels that computes the same.
ReduceOp vector_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kAverage: return ReduceOp::kSum;
    case ReduceOp::kLogicalAnd: return ReduceOp::kMin;
    case ReduceOp::kLogicalOr: return ReduceOp::kMax;
    case ReduceOp::kLogicalXor: return ReduceOp::kBitwiseXor;
    default: return op;
  }
}

// Except in a product, complex numbers are processed as a sequence of their parts.
DataType vector_dtype(DataType dtype, ReduceOp op) {
  if (op == ReduceOp::kProduct) return dtype;
  if (dtype == DataType::kComplex64) return DataType::kFloat32;
  return dtype == DataType::kComplex128 ? DataType::kFloat64 : dtype;
}

bool is_scalable(TypeClass type_class) {
  return type_class == TypeClass::kFloating || type_class == TypeClass::kComplex;
}

void copy(const std::byte* from, std::byte* to, std::size_t n_bytes) {
  if (from != to) copy_bytes(to, from, n_bytes);
}

}  // namespace

std::string_view to_string(SimdLevel level) {
  switch (level) {
    case SimdLevel::kAvx512: return "avx512";
    case SimdLevel::kAvx2: return "avx2";
    case SimdLevel::kBaseline: break;
  }
  return "baseline";
}

SimdLevel best_simd_level() {
  static const SimdLevel best = detect_simd_level();
  return best;
}

SimdLevel active_simd_level() { return active_level().load(std::memory_order_relaxed); }

void set_simd_level(SimdLevel level) {
  active_level().store(std::min(level, best_simd_level()), std::memory_order_relaxed);
}

void reduce(const Reduction& reduction, std::span<const std::byte* const> inputs, std::byte* out, std::size_t count) {
  assert(!inputs.empty() && accepts(reduction.op, reduction.dtype) && reduction.n_average >= 1);
  assert(reduction.weights.empty() || (reduction.op == ReduceOp::kSum && reduction.weights.size() == inputs.size()));
  if (count == 0) return;
  const DataTypeInfo& type = info(reduction.dtype);
  const bool unscaled = is_unscaled(reduction, type.type_class);
  if (unscaled && inputs.size() == 1) return copy(inputs[0], out, count * type.n_bytes);
  const ScopedFloatEnvironment environment;
  if (!unscaled && !is_scalable(type.type_class)) return reduce_scaled_integers(reduction, inputs, out, count);
  const ResultFactors factors = unscaled ? ResultFactors{1.0, 1.0} : result_factors(reduction);
  vector_kernel(active_simd_level())({.dtype = vector_dtype(reduction.dtype, reduction.op),
                                      .op = vector_op(reduction.op),
                                      .prescale = unscaled ? 1.0 : reduction.prescale,
                                      .divisor = factors.divisor,
                                      .postscale = factors.postscale,
                                      .weights = reduction.weights.empty() ? nullptr : reduction.weights.data(),
                                      .inputs = inputs.data(),
                                      .n_inputs = inputs.size(),
                                      .out = out,
                                      .n_bytes = count * type.n_bytes});
}

}  // namespace ciranda::kernels
