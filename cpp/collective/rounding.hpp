// Rounding: float32 travels to other hosts as bfloat16. These numbers are therefore rounded, once each:
//
//   parts   the values that hosts exchange: the combined inputs of n_together ranks, in float32 (with their factors);
//           or one rank's input, unchanged
//   result  the combination of the parts in float32, with the remaining factors
//
// All ranks get the same bits, including those that reduced; and the same bits with every algorithm.
// Called by NativeBackend, Policy, algorithms.hpp, launch.hpp, direct_allreduce_by_hosts.cc,
// direct_allreduce_doubling.cc, direct_allreduce_one_shot.cc, direct_allreduce_two_shot.cc, direct_reducescatter.cc,
// shm_allreduce_one_shot.cc and shm_reducescatter.cc; pure functions and plain values.
#pragma once

#include <cstddef>
#include <span>

#include "collective/slices.hpp"
#include "fuse/piece_list.hpp"
#include "kernels/kernels.hpp"

namespace ciranda {

struct Rounding {
  // The number of consecutive ranks of a host, from a multiple of this number on; 0: nothing is rounded.
  int n_together = 0;

  bool is_on() const { return n_together > 0; }
  // True if each rank's own input is rounded, so that it may travel as bfloat16.
  bool is_of_inputs() const { return n_together == 1; }
};

// A reduction, split so that some ranks' inputs are combined first.
struct InParts {
  explicit InParts(const Reduction& reduction);

  Reduction of_part;
  Reduction of_all;
};

// As kernels::reduce, with rounding if that is on.
void reduce_rounded(const Reduction& reduction, const Rounding& rounding, std::span<const std::byte* const> inputs,
                    std::span<std::byte> out);

// As reduce_rounded(), but into a piece list, from inputs that each lie in one piece.
// `inputs`: where each input's bytes for the range begin; advanced to the end of the range.
inline void reduce_pieces(const Reduction& reduction, std::span<const std::byte*> inputs, const OutputPieces& to,
                          const Slice& range, const Rounding& rounding = {}) {
  to.for_range(range.offset, range.n_bytes, [&](std::span<std::byte> part, std::size_t /*at*/) {
    reduce_rounded(reduction, rounding, inputs, part);
    for (const std::byte*& input : inputs) input += part.size();
  });
}

}  // namespace ciranda
