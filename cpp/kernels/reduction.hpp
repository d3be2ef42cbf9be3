// Reduction: the operator, element type and factors of a reduction (kernels.hpp). A plain value.
#pragma once

#include <span>

#include "base/dtype.hpp"
#include "base/reduce_op.hpp"

namespace ciranda::kernels {

struct Reduction {
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;  // Average divides by n_average
  double prescale = 1.0;         // applied to each input
  double postscale = 1.0;        // applied to the result, of an average to what the division gives
  int n_average = 1;             // the divisor of Average: the number of ranks that took part
  // Of a sum: for each input, in their order, what its prescale is multiplied by; empty for none.
  std::span<const double> weights = {};
};

}  // namespace ciranda::kernels
