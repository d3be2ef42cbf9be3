// Copies between piece lists of the same length, leaving out what is the same memory.
#pragma once

#include "base/copy_bytes.hpp"
#include "fuse/piece_list.hpp"

namespace ciranda {

// REQUIRES: offset + n_bytes <= to.n_bytes().
inline void copy_pieces(const InputPieces& from, const OutputPieces& to, std::size_t offset, std::size_t n_bytes) {
  to.for_range(offset, n_bytes, [&](std::span<std::byte> part, std::size_t at) {
    from.for_range(offset + at, part.size(), [&](std::span<const std::byte> source, std::size_t inner) {
      std::byte* destination = part.data() + inner;
      if (source.data() != destination) copy_bytes(destination, source.data(), source.size());
    });
  });
}

inline void copy_pieces(const InputPieces& from, const OutputPieces& to) { copy_pieces(from, to, 0, to.n_bytes()); }

}  // namespace ciranda
