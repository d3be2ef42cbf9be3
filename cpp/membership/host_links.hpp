// Which ranks of a host are connected with each other, and the tree in which messages of the probe travel over these
// connections. A group is the ranks that try to share memory, known by their places 0 to n - 1 in it.
//
// Called by join_world() and probe_shared_memory(); pure arithmetic.
#pragma once

#include <bit>
#include <vector>

namespace ciranda {

// In a group of up to so many, all are connected with all.
inline constexpr int kFewOfHost = 16;

// In a larger one, each with those 1, 2, 4, ... places before and after it: so each is watched by some, whoever else
// ends, and has O(log n) connections.
inline bool are_linked(int place, int other, int n) {
  const auto distance = static_cast<unsigned>((other + n - place) % n);
  return n <= kFewOfHost || std::has_single_bit(distance) || std::has_single_bit(static_cast<unsigned>(n) - distance);
}

// REQUIRES: place > 0. A star at place 0, or a binomial tree (all its edges are links, since each clears one bit).
inline int parent_of(int place, int n) { return n <= kFewOfHost ? 0 : place & (place - 1); }

inline std::vector<int> children_of(int place, int n) {
  std::vector<int> children;
  for (int each = place + 1; each < n; ++each) {
    if (parent_of(each, n) == place) children.push_back(each);
  }
  return children;
}

inline bool is_below(int place, int above, int n) {
  while (place > above) place = parent_of(place, n);
  return place == above;
}

}  // namespace ciranda
