// Divides a range of bytes among ranks, in whole cache lines, so that no element and no line is split. Also cuts a
// range into blocks, which are moved one after the other. Called by Rounding, direct_allreduce_by_hosts.cc,
// direct_allreduce_two_shot.cc, direct_reducescatter.cc, shm_allreduce_two_shot.cc, shm_broadcast.cc, shm_exchange.cc
// and shm_reducescatter.cc; pure.
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/round_up.hpp"

namespace ciranda {

struct Slice {
  std::size_t offset;
  std::size_t n_bytes;
};

inline Slice slice_of(std::size_t n_bytes, int n_ranks, int rank) {
  constexpr std::size_t kLine = 64;
  const auto n = static_cast<std::size_t>(n_ranks);
  const std::size_t share = round_up(divide_up(n_bytes, n), kLine);
  const std::size_t begin = std::min(share * static_cast<std::size_t>(rank), n_bytes);
  const std::size_t end = std::min(begin + share, n_bytes);
  return {begin, end - begin};
}

inline Slice slice_of(const Slice& whole, int n_ranks, int rank) {
  const Slice slice = slice_of(whole.n_bytes, n_ranks, rank);
  return {whole.offset + slice.offset, slice.n_bytes};
}

// Empty for blocks beyond the last.
inline Slice block_of(std::size_t n_bytes, std::size_t block_bytes, std::size_t block) {
  const std::size_t begin = std::min(block * block_bytes, n_bytes);
  return {begin, std::min(block_bytes, n_bytes - begin)};
}

}  // namespace ciranda
