// Turns: the order in which calls by NCCL begin on this rank's GPU, over all of its lanes. NCCL wants one order of all
// its calls on all GPUs, or it may hang, and lanes have no order among each other. So each entry by NCCL of a lane's
// log has a turn, in the order of the world's log: an entry of the world's first lane by its own position there, one of
// another lane by a TurnEntry, for which that lane's coordinator asks.
//
// No rank waits for ever: of the entries whose turn has not ended on all ranks, the first in this order waits for no
// other turn, and what is before it in its lane goes another way.
//
// Called by Lane and DataPlane, through WorldParts and LaneTurns; one thread (the holder of the progress lock); pure.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "agree/messages.hpp"

namespace ciranda {

class Turns {
 public:
  enum class State : std::uint8_t {
    kAwaited,  // the log has not given it yet
    kGiven,    // others are before it
    kHere,
    kNever,  // the log will not give it
  };

  // --- by the world's first lane

  // What this rank is to ask the world's coordinator for, since the last call.
  std::vector<TurnMessage> take_asked();
  // The log gives the next turn. Those of lanes that this rank does not have are no turns of its.
  void give(LaneId lane, std::uint64_t log_index);
  // The log gives no more, because its coordinator has left.
  void close() { is_closed_ = true; }

 private:
  friend class LaneTurns;

  struct Turn {
    LaneId lane;
    std::uint64_t log_index;
    bool operator==(const Turn&) const = default;
  };

  std::map<LaneId, std::uint64_t> ends_;  // of this rank's lanes: entries from there on are not executed
  std::deque<Turn> order_;                // given, and not over
  std::vector<TurnMessage> asked_;
  bool is_closed_ = false;
};

// Those of one lane of this rank, which lives as long as this.
class LaneTurns {
 public:
  LaneTurns(Turns& turns, LaneId lane);
  ~LaneTurns();
  LaneTurns(const LaneTurns&) = delete;
  LaneTurns& operator=(const LaneTurns&) = delete;

  // The lane's coordinator: this entry needs a turn.
  void ask(std::uint64_t log_index) { turns_.asked_.push_back({lane_, log_index}); }
  Turns::State of(std::uint64_t log_index) const;
  // The entry has been executed: its work is in NCCL's stream.
  void end(std::uint64_t log_index);
  // Entries from here on are not executed.
  void give_up_from(std::uint64_t log_index);

 private:
  Turns& turns_;
  const LaneId lane_;
};

}  // namespace ciranda
