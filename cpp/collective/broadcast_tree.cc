#include "collective/broadcast_tree.hpp"

#include <algorithm>
#include <bit>

namespace ciranda {
namespace {

// Positions are counted from the root, which is 0.
int parent_of(TreeShape shape, int position) {
  if (position == 0) return -1;
  if (shape == TreeShape::kChain) return position - 1;
  return position - static_cast<int>(std::bit_floor(static_cast<unsigned>(position)));
}

std::vector<int> children_of(TreeShape shape, int position, int n) {
  std::vector<int> children;
  if (shape == TreeShape::kChain) {
    if (position + 1 < n) children.push_back(position + 1);
    return children;
  }
  for (int step = position == 0 ? 1 : static_cast<int>(std::bit_floor(static_cast<unsigned>(position))) * 2;
       position + step < n; step *= 2) {
    children.push_back(position + step);
  }
  return children;
}

// The tree over some ranks, the first of which is its root.
void add_links(TreePosition& at, TreeShape shape, const std::vector<int>& ranks, int rank) {
  const auto position = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
  const int parent = parent_of(shape, position);
  if (parent >= 0) at.parent = ranks[static_cast<std::size_t>(parent)];
  for (const int child : children_of(shape, position, static_cast<int>(ranks.size()))) {
    at.children.push_back(ranks[static_cast<std::size_t>(child)]);
  }
}

}  // namespace

TreePosition position_in_tree(TreeShape shape, const std::vector<int>& host_of, int root, int rank) {
  const auto n = static_cast<int>(host_of.size());
  const auto host = [&](int of) { return host_of[static_cast<std::size_t>(of)]; };
  std::vector<int> heads;       // the first rank of each host, in rank order from the root on
  std::vector<int> neighbours;  // the ranks of this rank's host, its head first
  std::vector<bool> has_head(host_of.size(), false);
  for (int distance = 0; distance < n; ++distance) {
    const int other = (root + distance) % n;
    if (host(other) == host(rank)) neighbours.push_back(other);
    if (has_head[static_cast<std::size_t>(host(other))]) continue;
    has_head[static_cast<std::size_t>(host(other))] = true;
    heads.push_back(other);
  }
  TreePosition found;
  if (rank == neighbours.front()) add_links(found, shape, heads, rank);
  add_links(found, shape, neighbours, rank);
  return found;
}

}  // namespace ciranda
