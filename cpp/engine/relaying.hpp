// Relaying: a lane's place in the tree of relays: to whom it announces, from whom it gets the log, and its relay if it
// is one. Only lanes whose ranks are on several hosts have it, and there only if some host has more than one.
//
// "Member" is a rank of the lane. One thread (the holder of the progress token).
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "negotiate/members.hpp"
#include "negotiate/messages.hpp"
#include "negotiate/relay.hpp"
#include "negotiate/relay_tree.hpp"
#include "transport/lane_mesh.hpp"

namespace ciranda {

// What is kept back to be announced together: until nothing has been added for a while, and in no case for long.
class Holding {
 public:
  explicit Holding(std::chrono::nanoseconds patience) : patience_(patience) {}
  void update(bool holds_any, bool has_progress, TimePoint now);
  bool is_over(TimePoint now) const { return due_ && now >= *due_; }
  std::optional<TimePoint> due() const { return due_; }

 private:
  std::chrono::nanoseconds patience_;
  TimePoint began_;
  std::optional<TimePoint> due_;
};

class Relaying {
 public:
  // Null where the lane does without.
  static std::unique_ptr<Relaying> make(const LaneMesh& mesh);

  int announces_to() const { return announces_to_; }
  int gets_log_from() const { return gets_log_from_; }  // -1: it coordinates
  bool is_relay() const { return relay_.has_value(); }

  // When what it has gathered must go.
  std::optional<TimePoint> due() const { return holding_.due(); }

  // REQUIRES, here and below: it is a relay. Whom it passes the log to.
  const std::vector<int>& below() const { return below_; }
  Status hear(int from, Message message) { return relay_->hear(from, std::move(message)); }
  void pass_down(const LogMessage& log) { relay_->pass_down(log); }
  // What is to be passed on now, if anything.
  std::optional<RelayedMessage> take(TimePoint now);

 private:
  Relaying(const RelayTree& tree, int member);

  int announces_to_;
  int gets_log_from_;
  std::vector<int> below_;
  std::optional<Relay> relay_;
  Holding holding_;
};

}  // namespace ciranda
