// Reduction: how elements are combined: their type, the operator and the factors (kernels/kernels.hpp). A plain value.
// Used by kernels/, fuse/, whose Plan is one, and backend/cuda/kernels/; through these by collective/, execute/ and
// backend/.
#pragma once

#include <vector>

#include "base/dtype.hpp"
#include "base/reduce_op.hpp"

namespace ciranda {

struct Reduction {
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;  // Average divides by n_average
  double prescale = 1.0;         // applied to each input
  double postscale = 1.0;        // applied to the result, of an average after the division
  int n_average = 1;             // the divisor of Average: the number of ranks that took part
  // For a sum only: the weight of each input, in their order, by which its prescale is multiplied; empty if none.
  std::vector<double> weights = {};
};

}  // namespace ciranda
