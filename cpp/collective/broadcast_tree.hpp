// The trees along which ranks forward a broadcast: each rank's parent and children.
//
// One rank of each host is in the tree over hosts: the root, and on each other host the first rank after the root. That
// rank forwards within its host, along a tree of the same shape, so each host receives the data over its link once.
//   binomial   after k rounds 2^k hosts have the data; the root sends it once a round
//   chain      each rank forwards to one other; the last is as many hops away as there are ranks
// Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH, 2005 (binomial);
// Watts, van de Geijn: A Pipelined Broadcast for Multidimensional Meshes, 1995 (chain).
// Called by direct_broadcast.cc; pure.
#pragma once

#include <cstdint>
#include <vector>

namespace ciranda {

enum class TreeShape : std::uint8_t { kBinomial, kChain };

struct TreePosition {
  int parent = -1;            // -1: this rank is the root
  std::vector<int> children;  // the child with the largest subtree first
};

// host_of: by rank, the number of its host; the same on all ranks.
TreePosition position_in_tree(TreeShape shape, const std::vector<int>& host_of, int root, int rank);

}  // namespace ciranda
