// The interface between dispatch (kernels.cc) and the vectorised kernels: a job for one SIMD level.
//
// Every level_*.cc defines one function of type VectorKernel: the same templates (level_reduce.hpp), compiled for
// different instruction sets. Pure functions of the job; callable from any thread; they cannot fail.
//
// Called by kernels.hpp, cpu.hpp and cpu_*.cc; defined in level_*.cc; types used by level_convert.hpp and
// level_reduce.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.hpp"
#include "base/reduce_op.hpp"

namespace ciranda::kernels {

// The conversions of bfloat16_wire.hpp, which a job may request instead of a reduction.
enum class Conversion : std::uint8_t { kNone, kRound, kPack, kUnpack };

// REQUIRES: op is elementwise, not kAverage (an average is a sum with a divisor) and not logical (a logical operator is
// passed as min, max or bitwise xor of bool); complex types only for products (other operators get the parts, as
// floats); factors are 1 unless dtype is floating or complex; weights and a divisor only for floating sums, and not
// both at once; n_inputs >= 1.
struct VectorJob {
  // For other values only inputs[0], out and n_bytes, the size of the float32, are read.
  Conversion conversion = Conversion::kNone;
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double divisor = 1.0;             // of the operator's result
  double postscale = 1.0;           // of the quotient
  const double* weights = nullptr;  // n_inputs of them, or null
  const std::byte* const* inputs = nullptr;
  std::size_t n_inputs = 0;
  std::byte* out = nullptr;
  std::size_t n_bytes = 0;  // of each input and of out
};

using VectorKernel = void (*)(const VectorJob& job);

void reduce_baseline(const VectorJob& job);
void reduce_avx2(const VectorJob& job);    // defined on x86 only
void reduce_avx512(const VectorJob& job);  // defined on x86 only

}  // namespace ciranda::kernels
