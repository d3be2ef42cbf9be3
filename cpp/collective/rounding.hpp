// Rounding: that float32 goes to other hosts as bfloat16, and which numbers are therefore rounded, once each:
//
//   parts   what is combined among hosts: the inputs of n_together ranks, combined in float32 (with their factors), or
//           of one rank, as it is
//   result  what the parts, with the factors that are left, give in float32
//
// All ranks get the same bits, those that reduced too; and the same whatever algorithm carries a plan out.
// Pure functions and plain values.
#pragma once

#include <cstddef>
#include <span>

#include "collective/slices.hpp"
#include "fuse/piece_list.hpp"
#include "kernels/kernels.hpp"

namespace ciranda {

struct Rounding {
  // Ranks of a host, whose positions follow each other from a multiple of it; 0: nothing is rounded.
  int n_together = 0;

  bool is_on() const { return n_together > 0; }
  // Whether each rank's own input is rounded, so that it may travel as bfloat16.
  bool is_of_inputs() const { return n_together == 1; }
};

// A reduction, split so that some ranks' inputs are combined first.
struct InParts {
  explicit InParts(const kernels::Reduction& reduction);

  kernels::Reduction of_part;
  kernels::Reduction of_all;
};

// As kernels::reduce, rounding on the way if that is on.
void reduce_rounded(const kernels::Reduction& reduction, const Rounding& rounding,
                    std::span<const std::byte* const> inputs, std::span<std::byte> out);

// The same into a piece list, from what lies in one piece each.
// `inputs`: where each begins that is for the range; they move on to its end.
inline void reduce_pieces(const kernels::Reduction& reduction, std::span<const std::byte*> inputs,
                          const OutputPieces& to, const Slice& range, const Rounding& rounding = {}) {
  to.for_range(range.offset, range.n_bytes, [&](std::span<std::byte> part, std::size_t /*at*/) {
    reduce_rounded(reduction, rounding, inputs, part);
    for (const std::byte*& input : inputs) input += part.size();
  });
}

}  // namespace ciranda
