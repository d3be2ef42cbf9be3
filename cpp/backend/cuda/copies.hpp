// Copies: ranges of a GPU's memory that one launch copies (PeerStream::Tasks::copy), and how they follow from pieces of
// tensors. Plain values; pure.
// Used by PeerAlone, PeerCollective and NcclCollective, and through these by what implements them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "backend/cuda/kernels/arguments.hpp"
#include "fuse/piece_list.hpp"

namespace ciranda::cuda {

using Copies = std::vector<Piece>;

// A range of tensors, to memory where its pieces follow each other.
inline void add(Copies& to, const InputPieces& from, std::size_t offset, std::byte* memory, std::size_t n_bytes) {
  from.for_range(offset, n_bytes, [&](std::span<const std::byte> part, std::size_t at) {
    to.push_back({part.data(), memory + at, part.size(), 0});
  });
}

// From there.
inline void add(Copies& to, const std::byte* memory, const OutputPieces& into, std::size_t offset,
                std::size_t n_bytes) {
  into.for_range(offset, n_bytes, [&](std::span<std::byte> part, std::size_t at) {
    to.push_back({memory + at, part.data(), part.size(), 0});
  });
}

// Between tensors, without those that are the same memory.
inline void add(Copies& to, const InputPieces& from, const OutputPieces& into, std::size_t offset,
                std::size_t n_bytes) {
  into.for_range(offset, n_bytes, [&](std::span<std::byte> part, std::size_t at) {
    if (from.at(offset + at).data() != part.data()) add(to, from, offset + at, part.data(), part.size());
  });
}

}  // namespace ciranda::cuda
