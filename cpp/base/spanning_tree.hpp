// SpanningTree: over which connections news of all ranks spreads, and so which two ranks are connected from the start:
// the relays of the world's first lane, or a star at rank 0. Ranks that leave are replaced by others.
//
// The rank above another is always lower, and is the first of a fixed list that has not left. So it changes only when
// it leaves itself, and a rank that knows of more departures than another still comes to the same answer for those that
// the other has asked to be above it.
//
// Called by join_world(), ControlPlane and Departures; plain. Two that know of the same departures are equal.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/relay_tree.hpp"

namespace ciranda {

class SpanningTree {
 public:
  // `hosts`: label by rank.
  SpanningTree(const std::vector<std::string>& hosts, bool uses_relays);

  void note_left(int rank);
  bool has_left(int rank) const { return has_left_[static_cast<std::size_t>(rank)]; }

  // -1: none, because all lower ranks have left.
  int parent(int rank) const;
  // Whether the two are connected from the start: one is above the other; or they are so few that all agree on calls
  // without the first. REQUIRES: nobody has left.
  bool are_linked(int rank, int other) const;

 private:
  bool are_all_linked_;
  RelayTree tree_;  // without relays: of one host
  std::vector<bool> has_left_;
  std::vector<std::size_t> n_gone_;  // by first rank of a host: so many of its first ranks have left
  int lowest_ = 0;                   // rank that has not left
};

}  // namespace ciranda
