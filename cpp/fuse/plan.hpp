// Plan: what a backend carries out: which bytes go where, and how they are combined. Made from requests that all ranks
// are ready for; making it copies nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.hpp"
#include "base/reduce_op.hpp"
#include "fuse/piece_list.hpp"
#include "request/request.hpp"

namespace ciranda {

struct Plan {
  Collective collective = Collective::kBarrier;
  DataType dtype = DataType::kUInt8;  // reductions only
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  int n_average = 1;              // the divisor of Average: set by whoever knows the ranks that take part
  std::vector<int> contributors;  // reductions: the members whose input counts, in ascending order; empty: all
  int root = -1;                  // a member of the mesh, as all ranks here
  InputPieces input;
  OutputPieces output;
  std::vector<OutputPieces> output_by_rank;  // allgather: where each rank's bytes go
};

// One plan a dtype, in the order of first appearance. REQUIRES: allreduces that agree in op and factors.
std::vector<Plan> plan_allreduce(std::span<const Request* const> requests);

Plan plan_broadcast(const Request& request);

// first_dims[tensor][rank]; outputs[tensor] is memory for all ranks' rows, in rank order.
Plan plan_allgather(const Request& request, const std::vector<std::vector<std::int64_t>>& first_dims,
                    std::span<std::byte* const> outputs);

}  // namespace ciranda
