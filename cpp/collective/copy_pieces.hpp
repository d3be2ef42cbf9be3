// Copies one piece list to another of the same length, unless they are the same memory.
#pragma once

#include "fuse/piece_list.hpp"

namespace ciranda {

inline void copy_pieces(const InputPieces& from, const OutputPieces& to) {
  to.for_range(0, to.n_bytes(), [&](std::span<std::byte> part, std::size_t at) {
    from.for_range(at, part.size(), [&](std::span<const std::byte> source, std::size_t inner) {
      std::byte* destination = part.data() + inner;
      if (source.data() != destination) std::memcpy(destination, source.data(), source.size());
    });
  });
}

}  // namespace ciranda
