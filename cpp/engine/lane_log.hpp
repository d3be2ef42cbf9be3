// LaneLog: one rank's part in the log of a lane. What the rank reports goes to the coordinator, and the log comes
// from it: directly, or through relays, which the world's lane has where its ranks are on several hosts and some host
// has more than one. The coordinator and the relays are in here, on the ranks that are them.
//
// "Member" is a rank of the lane. One thread (the holder of the progress lock).
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "agree/coordinator.hpp"
#include "agree/persistent_op.hpp"
#include "agree/relay.hpp"
#include "agree/relay_tree.hpp"
#include "base/coarse_clock.hpp"
#include "base/config.hpp"
#include "base/log.hpp"
#include "engine/control_plane.hpp"
#include "engine/holding.hpp"
#include "transport/lane_mesh.hpp"

namespace ciranda {

StallLimits stall_limits(const Config& config);

class LaneLog {
 public:
  // All but the configuration outlive this.
  LaneLog(LaneId id, const LaneMesh& mesh, ControlPlane& control, const Config& config, const Logger& logger);

  // What this rank reports, in the order in which it is to be heard.
  void report(const Message& message, TimePoint now);
  // To all other members, whoever coordinates: who does hears reports.
  void tell_all(const Message& message) {
    for (int member = 0; member < mesh_.size(); ++member) {
      if (member != mesh_.rank()) post(member, message);
    }
  }
  // All members have met for a name; the coordinator, if it is here, can say so of one that is missed later.
  void met(const PersistentOp& op) {
    if (coordinator_ && !op.is_unnamed()) coordinator_->on_met(op.cache_id(), coarse_now());
  }
  // Whether this rank has a use for what another member sent.
  bool expects(int from, const Message& message) const;
  // REQUIRES: it is expected. Returns what this rank is to carry out, if it was a part of the log. An error means that
  // the member breaks the rules.
  Result<LogMessage> hear(int from, Message message, TimePoint now);
  // What members below have reported goes on. Returns whether there was any.
  Result<bool> pass_on(TimePoint now);
  // The coordinator's: what comes next, for this rank to carry out too. Nothing on other ranks.
  // `n_bytes_under_way`: in the log and not carried out yet; counts only where there are priorities.
  LogMessage write(bool wire_is_idle, std::size_t n_bytes_under_way, TimePoint now);
  bool has_priorities() const { return coordinator_ && coordinator_->has_priorities(); }
  // The lane is taken down: if this is the coordinator, all that is open fails with `why`, and the log ends.
  void end(const Status& why);
  // This rank has no calls left, and leaves the lane's set: the coordinator takes the lane down. REQUIRES: it is
  // formed.
  void leave(TimePoint now) { report(LeaveMessage{}, now); }

  // The members through whom the log comes, the nearest first and the coordinator last; none where this is it.
  const std::vector<int>& above() const { return above_; }
  // The same on all members.
  bool has_relays() const { return has_relays_; }
  // Whether what others report may be what some rank waits for: as only the coordinator knows of others, where a rank
  // waits for something open, or a request, its own or another's, is not to be held back; at a relay always, as it does
  // not know who waits for what it gathers.
  bool awaits_reports(bool has_undeferrable) const {
    return relay_ || (coordinator_ &&
                      (coordinator_->keeps_a_rank_waiting() || coordinator_->has_pressing_round() || has_undeferrable));
  }
  // Null where this rank does not coordinate.
  const Coordinator* coordinator() const { return coordinator_.get(); }
  // When pass_on() or write() must be called even if nothing comes.
  std::optional<TimePoint> due() const;

 private:
  void take_place(const RelayTree& tree);
  void post(int member, const Message& message);
  Status take_in(int from, Message message, TimePoint now);
  void pass_down(const LogMessage& log);

  LaneId id_;
  const LaneMesh& mesh_;
  ControlPlane& control_;
  const Logger& logger_;
  int reports_to_ = 0;
  std::vector<int> above_;
  std::vector<int> below_;  // whom the log is passed to
  bool has_relays_ = false;
  std::optional<Relay> relay_;
  Holding gathering_;
  std::unique_ptr<Coordinator> coordinator_;
  std::optional<Status> last_word_;  // the coordinator's: it takes the lane down
  int leaver_ = -1;                  // because of whom, as of EndEntry
  bool has_ended_ = false;
};

}  // namespace ciranda
