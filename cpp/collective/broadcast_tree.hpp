// The trees along which a broadcast is passed on: from whom a rank gets it, and to whom it passes it on.
//
// One rank of each host is on the tree over hosts: the root, and of other hosts the first after it. From there it goes
// on within the host, along a tree of the same shape, so that each link carries it once in each direction a tree needs.
//   binomial   after k rounds 2^k hosts have it; the root sends it once a round
//   chain      each passes it on to one other; who waits longest is as many hops away as there are ranks
// Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH, 2005 (binomial);
// Watts, van de Geijn: A Pipelined Broadcast for Multidimensional Meshes, 1995 (chain).
// Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace ciranda {

enum class TreeShape : std::uint8_t { kBinomial, kChain };

struct TreePlace {
  int parent = -1;            // -1: the root's
  std::vector<int> children;  // those that have the most to pass on first
};

// host_of: by rank, a number of its host, alike on all ranks.
TreePlace place_in_tree(TreeShape shape, const std::vector<int>& host_of, int root, int rank);

}  // namespace ciranda
