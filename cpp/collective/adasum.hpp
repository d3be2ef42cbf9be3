// Adasum: adaptive summation of tensors over any number of ranks (kernels/adasum.hpp has the formula and cites the
// paper), as a sequence of plans that only move bytes, with arithmetic in between.
//
//   1. alltoall: every rank gets its share of every tensor, from all ranks
//   2. for each level of the tree over the ranks: allgather of the dot products of the pairs of that level, one a block
//      of each tensor; then each rank combines its share
//   3. allgather of the shares of the result
//
// Ranks are combined in the left-complete binary tree over rank order, as in kernels::reduce: x0 with x1, x2 with x3,
// then the results. Every tensor is a separate vector, even if several travel together. Products are added up block
// after block, and each block belongs to one rank, so the bits do not depend on the number of ranks that divide the
// work, the transport, or the tensors that travel together. 16-bit types are combined in float and rounded once, at the
// end.
//
// Called by execute/collectives/adasum.cc; one thread (the holder of the progress lock). The object holds as much
// memory as the tensors (twice as much for 16-bit types).
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/dtype.hpp"
#include "fuse/plan.hpp"

namespace ciranda {

// Memory of the caller, which outlives the sum. `output` may equal `input`. Both null on a rank that does not
// contribute.
struct AdasumTensor {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::size_t count = 0;  // elements
};

struct AdasumOptions {
  DataType dtype = DataType::kFloat32;  // REQUIRES: floating
  double prescale = 1.0;
  double postscale = 1.0;
  std::vector<int> contributors = {};  // the ranks whose tensors are summed, ascending; not empty
  int n_ranks = 1;
  int rank = 0;
};

class Adasum {
 public:
  virtual ~Adasum() = default;
  // The next plan, to be requested when the one before is done; null when the sum is done. The plan uses memory of this
  // object. Every rank gets the same number of plans.
  virtual std::optional<Plan> next() = 0;
};

std::unique_ptr<Adasum> make_adasum(AdasumOptions options, std::span<const AdasumTensor> tensors);

}  // namespace ciranda
