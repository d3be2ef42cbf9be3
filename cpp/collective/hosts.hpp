// How the ranks of a mesh lie on hosts, as far as algorithms make use of it.
#pragma once

#include <bit>
#include <map>
#include <string>
#include <vector>

#include "transport/mesh.hpp"

namespace ciranda {

// n if there are several hosts and the k-th has the ranks from k * n to k * n + n - 1, n a power of two and more than
// 1; else 0. The same on all ranks. The labels of hosts decide, so nothing but speed may depend on it,
// unless rounding is asked for (rounding.hpp).
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

// By rank, a number of its host: they are counted in the order of their lowest ranks. The same on all ranks.
inline std::vector<int> host_numbers(const Mesh& mesh) {
  std::map<std::string, int> numbers;
  std::vector<int> host_of;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    host_of.push_back(numbers.try_emplace(mesh.peer(rank).host, static_cast<int>(numbers.size())).first->second);
  }
  return host_of;
}

}  // namespace ciranda
