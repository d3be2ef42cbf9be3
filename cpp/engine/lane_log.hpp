// LaneLog: one rank's part in a lane's log. It sends the rank's reports to the coordinator and receives the log from
// it, directly or through relays. A lane has relays if its members are on several hosts and that pays: the world's
// first lane if some host has several of them; other lanes if they have more than 8 members besides; any lane if it has
// more than 33. On the ranks that are coordinator or relay, this object owns the Coordinator or Relay.
//
// "Member" is a rank of the lane. Called by Lane, Reports, AnswerWatch, RoundsInMemory and RoundsByMessages, through
// LaneParts; stall_limits() also by Engine; one thread (the holder of the progress lock).
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "agree/coordinator.hpp"
#include "agree/persistent_op.hpp"
#include "agree/relay.hpp"
#include "base/coarse_clock.hpp"
#include "base/config.hpp"
#include "base/log.hpp"
#include "base/relay_tree.hpp"
#include "engine/control_plane.hpp"
#include "engine/holding.hpp"
#include "observe/counters.hpp"
#include "observe/recorder.hpp"
#include "transport/lane_mesh.hpp"

namespace ciranda {

StallLimits stall_limits(const Config& config);

class LaneLog {
 public:
  // What learns how long ranks wait for others, and of which arrivals.
  struct Observers {
    Counters& counters;
    Recorder& recorder;
  };
  // All arguments but the configuration outlive this object, and so do those of the observers.
  LaneLog(LaneId id, const LaneMesh& mesh, ControlPlane& control, const Config& config, const Logger& logger,
          Observers observers);

  // Sends a report of this rank. The coordinator receives reports in the order of these calls.
  void report(const Message& message, TimePoint now);
  // Sends a message to all other members. This rank's own coordinator, if it is here, gets reports instead.
  void send_to_all(const Message& message) {
    for (int member = 0; member < mesh_.size(); ++member) {
      if (member != mesh_.rank()) post(member, message);
    }
  }
  // A direct round of this name is complete. The coordinator, if it is here, notes it for reports of missing ranks.
  void note_direct_round(const PersistentOp& op) {
    if (coordinator_ && !op.is_unnamed()) coordinator_->on_direct_round(op.cache_id(), coarse_now());
  }
  // True if this rank may receive a message of this kind from member `from`.
  bool expects(int from, const Message& message) const;
  // REQUIRES: expects(). If the message is a part of the log, returns its entries, which this rank must execute. An
  // error means that the member violates the protocol.
  Result<LogMessage> on_message(int from, Message message, TimePoint now);
  // At a relay: forwards the reports of the members below it. Returns whether there were any.
  Result<bool> pass_on(TimePoint now);
  // At the coordinator: appends the next entries to the log and sends them. Also returns them, since this rank must
  // execute them too. Other ranks return no entries. `n_bytes_under_way`: bytes in the log that are not executed yet;
  // used only with priorities.
  LogMessage write(bool wire_is_idle, std::size_t n_bytes_under_way, TimePoint now);
  bool has_priorities() const { return coordinator_ && coordinator_->has_priorities(); }
  // Takes the lane down: at the coordinator, all open negotiations fail with `why`, and the log ends.
  void end(const Status& why);
  // This rank has no pending calls and leaves the lane's set: the coordinator takes the lane down. REQUIRES: the set is
  // formed.
  void leave(TimePoint now) { report(LeaveMessage{}, now); }

  // The members through which the log reaches this rank: its relays, nearest first, then the coordinator. Empty at the
  // coordinator.
  const std::vector<int>& above() const { return above_; }
  // The same on all members.
  bool has_relays() const { return has_relays_; }
  // True if an incoming report could unblock a rank. Always true at a relay, which does not know which ranks wait. At
  // the coordinator: true if a rank waits for an open negotiation, or if a request of any rank must not be held back.
  bool awaits_reports(bool has_undeferrable) const {
    return relay_ || (coordinator_ &&
                      (coordinator_->keeps_a_rank_waiting() || coordinator_->has_pressing_call() || has_undeferrable));
  }
  // Null if this rank is not the coordinator.
  const Coordinator* coordinator() const { return coordinator_.get(); }
  // When pass_on() or write() must be called even if no message arrives.
  std::optional<TimePoint> due() const;

 private:
  void take_place(const RelayTree& tree);
  // At the coordinator: reports were sent before their senders learned of the lane's end.
  bool is_ending() const { return has_ended_ || last_word_; }
  void post(int member, const Message& message);
  Status take_in(int from, Message message, TimePoint now);
  void pass_down(const LogMessage& log);
  void count_held_up();
  void record_arrivals();

  LaneId id_;
  const LaneMesh& mesh_;
  ControlPlane& control_;
  const Logger& logger_;
  Observers observers_;
  int reports_to_ = 0;
  std::vector<int> above_;
  std::vector<int> below_;  // the members to which this rank forwards the log
  bool has_relays_ = false;
  std::optional<Relay> relay_;
  Holding gathering_;
  std::unique_ptr<Coordinator> coordinator_;
  std::optional<Status> last_word_;  // at the coordinator: the error of open calls, set when it takes the lane down
  int leaver_ = -1;                  // the rank that ended the set by leaving it, as in EndEntry
  bool has_ended_ = false;
};

}  // namespace ciranda
