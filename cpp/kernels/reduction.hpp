// Reduction: the operator, element type and factors of a reduction (kernels.hpp). A plain value.
// Used by kernels/, and through kernels.hpp by collective/ and execute/collectives/.
#pragma once

#include <span>

#include "base/dtype.hpp"
#include "base/reduce_op.hpp"

namespace ciranda::kernels {

struct Reduction {
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;  // Average divides by n_average
  double prescale = 1.0;         // applied to each input
  double postscale = 1.0;        // applied to the result, of an average after the division
  int n_average = 1;             // the divisor of Average: the number of ranks that took part
  // For a sum only: the weight of each input, in their order, by which its prescale is multiplied; empty if none.
  std::span<const double> weights = {};
};

}  // namespace ciranda::kernels
