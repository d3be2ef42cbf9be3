// The placement of a mesh's ranks on hosts, as algorithms need it. Called by NativeBackend and CostModel; pure.
#pragma once

#include <bit>
#include <map>
#include <string>
#include <vector>

#include "transport/mesh.hpp"

namespace ciranda {

// Returns n if there are several hosts, the k-th of which has the ranks from k * n to k * n + n - 1, and n is a power
// of two above 1; else 0. The same on all ranks. It is derived from the labels of hosts, so only speed may depend on
// it, and with rounding to bfloat16 (rounding.hpp) also results.
inline int ranks_per_host(const Mesh& mesh) {
  const auto is_with_previous = [&mesh](int rank) { return mesh.peer(rank).host == mesh.peer(rank - 1).host; };
  int n = 1;
  while (n < mesh.size() && is_with_previous(n)) ++n;
  if (n == 1 || n == mesh.size() || mesh.size() % n != 0 || !std::has_single_bit(static_cast<unsigned>(n))) return 0;
  for (int rank = n; rank < mesh.size(); ++rank) {
    if (is_with_previous(rank) != (rank % n != 0)) return 0;
  }
  return n;
}

// The number of each rank's host. Hosts are numbered in the order of their lowest ranks. The same on all ranks.
inline std::vector<int> host_numbers(const Mesh& mesh) {
  std::map<std::string, int> numbers;
  std::vector<int> host_of;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    host_of.push_back(numbers.try_emplace(mesh.peer(rank).host, static_cast<int>(numbers.size())).first->second);
  }
  return host_of;
}

}  // namespace ciranda
