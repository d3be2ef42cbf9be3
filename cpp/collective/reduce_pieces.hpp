// Reduces into a piece list what lies in one piece each.
#pragma once

#include <cstddef>
#include <span>

#include "collective/rounding.hpp"
#include "collective/slices.hpp"
#include "fuse/piece_list.hpp"
#include "kernels/kernels.hpp"

namespace ciranda {

// `inputs`: where each begins that is for the range; they move on to its end.
inline void reduce_pieces(const kernels::Reduction& reduction, std::span<const std::byte*> inputs,
                          const OutputPieces& to, const Slice& range, const Rounding& rounding = {}) {
  to.for_range(range.offset, range.n_bytes, [&](std::span<std::byte> part, std::size_t /*at*/) {
    reduce_rounded(reduction, rounding, inputs, part);
    for (const std::byte*& input : inputs) input += part.size();
  });
}

}  // namespace ciranda
