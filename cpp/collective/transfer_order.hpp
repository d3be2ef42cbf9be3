// TransferOrder: the order in which two ranks queue their transfers, if every block takes two and kDepth blocks are in
// flight: first 0, first 1, second 0, first 2, second 1, first 3, ... Called by direct_allreduce_by_hosts.cc,
// direct_allreduce_two_shot.cc and Policy; pure.
#pragma once

#include <algorithm>
#include <cstddef>

namespace ciranda {

struct TransferOrder {
  static constexpr std::size_t kDepth = 2;

  std::size_t n_blocks;

  // The positions of a block's transfers in the queue. At the end, seconds follow each other: no firsts are left.
  static constexpr std::size_t first(std::size_t block) { return block < kDepth ? block : 2 * block - 1; }
  constexpr std::size_t second(std::size_t block) const { return std::min(block + kDepth, n_blocks) + block; }
};

}  // namespace ciranda
