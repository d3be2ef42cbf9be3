// Departures: which ranks have left the world, as far as this rank knows, and between which others news must spread
// therefore.
//
// A set that only grows, merged over each connection: whatever the order in which ranks hear of departures, all come to
// the same tree. Called by ControlPlane; one thread. No I/O.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "agree/messages.hpp"
#include "base/spanning_tree.hpp"

namespace ciranda {

// A rank that said goodbye. It has executed each lane's log up to the index in its goodbye, and executes no more.
struct Departure {
  int rank;
  std::vector<ByeMessage::LaneEnd> lanes;

  std::uint64_t log_index(LaneId lane) const { return end_of(lane).log_index; }
  // The rank that left the lane first, as far as this one knew.
  int first_leaver(LaneId lane) const {
    const int before = end_of(lane).first_leaver;
    return before < 0 ? rank : before;
  }

 private:
  ByeMessage::LaneEnd end_of(LaneId lane) const {
    for (const ByeMessage::LaneEnd& end : lanes) {
      if (end.lane == lane) return end;
    }
    return {};
  }
};

class Departures {
 public:
  Departures(int self, SpanningTree tree) : self_(self), tree_(std::move(tree)) {}

  // Returns whether it is news.
  bool note(Departure departure) {
    if (has_left(departure.rank)) return false;
    tree_.note_left(departure.rank);
    all_.push_back(std::move(departure));
    return true;
  }

  // In the order in which this rank has heard of them.
  const std::vector<Departure>& all() const { return all_; }
  bool has_left(int rank) const { return tree_.has_left(rank); }

  // The rank from which this one hears what others know, and tells what those below it know; -1 at the root.
  int above() const { return tree_.parent(self_); }
  bool is_below(int rank) const { return rank > self_ && tree_.parent(rank) == self_; }
  // The next rank on the way to that one, which may have left; -1 where there is no way.
  int next_to(int rank) const {
    for (int at = rank; at > self_;) {
      const int above_it = tree_.parent(at);
      if (above_it == self_) return at;
      at = above_it;
    }
    return above();
  }

 private:
  int self_;
  SpanningTree tree_;
  std::vector<Departure> all_;
};

}  // namespace ciranda
