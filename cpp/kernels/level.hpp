// The seam between dispatch and the vectorised kernels: what one SIMD level is asked to do.
//
// Every level_*.cc defines one function of type VectorKernel; they are the same templates (level_reduce.hpp) compiled
// for different instruction sets. Pure functions of the job; callable from any thread; they cannot fail.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.hpp"
#include "base/reduce_op.hpp"

namespace ciranda::kernels {

// Instead of a reduction: bfloat16_wire.hpp.
enum class Conversion : std::uint8_t { kNone, kRound, kPack, kUnpack };

// REQUIRES: op is not kAverage (an average is a sum with a divisor), not logical (a logical operator is one of bool
// as a number: min, max, bitwise xor), elementwise; complex numbers come for their product only (a sum is that of their
// parts); factors are 1 unless dtype is floating or complex; weights and a divisor are for floating sums only, and not
// both at once; n_inputs >= 1.
struct VectorJob {
  Conversion conversion =
      Conversion::kNone;  // of one input, whose n_bytes are those of the float32; else no more counts
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double divisor = 1.0;             // of what the operator gives
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
