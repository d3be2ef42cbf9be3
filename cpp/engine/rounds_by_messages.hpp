// RoundsByMessages: this rank's calls in direct rounds by messages: it sends its input to all members, receives theirs
// (agree/sent_inputs.hpp) and combines them, without an entry of the log.
//
// "Member" is a rank of the lane. Called by Lane; one thread (the holder of the progress lock).
#pragma once

#include <optional>

#include "agree/sent_inputs.hpp"
#include "base/thread_annotations.hpp"
#include "engine/lane_parts.hpp"
#include "engine/liveness_probe.hpp"

namespace ciranda {

class RoundsByMessages {
 public:
  // The logger outlives this.
  RoundsByMessages(const LaneParts& lane, const Config& config, const StallLimits& patience, const Logger& logger);

  // Contributes a call to a direct round, if it can take part in one. Returns whether it does: the call is then pending
  // until all members have sent their inputs, or the log answers it.
  bool arrive(PersistentOp& op, Ticket ticket, TimePoint now);
  // The log has answered it.
  void forget(Ticket ticket) {
    if (!inputs_.empty()) inputs_.forget(ticket);
  }
  Status on_input(int from, InputMessage message, TimePoint now) REQUIRES(progress_lock);
  // Executes the rounds for which all inputs have arrived.
  Status carry_out(TimePoint now) REQUIRES(progress_lock);

  // False if this rank has sent an input and waits for the inputs of other members.
  bool empty() const { return inputs_.empty(); }
  // Returns Timeout if a member whose input is awaited has been silent for too long.
  Status look_for_silence(TimePoint now) { return empty() ? Status::ok_status() : probe_.look(now); }
  std::optional<TimePoint> due() const { return empty() ? std::nullopt : probe_.due(); }

  // The member sends no more inputs.
  void on_end(int from) { inputs_.on_end(from); }
  // Informs all members that this rank sends no more inputs, because it refuses new calls. So a member that waits for
  // an input of this rank knows that none will arrive.
  void send_no_more();
  // Fails the calls that lack an input that will not arrive.
  void fail_lost(const Status& why) REQUIRES(progress_lock);
  void clear() { inputs_.clear(); }

 private:
  void note_agreed(const SentInputs::Done& done) REQUIRES(progress_lock);

  const LaneParts lane_;
  const bool goes_by_messages_;  // the lane can have such rounds; the coordinator's settings decide if it has
  const Logger& logger_;
  SentInputs inputs_;
  LivenessProbe probe_;  // active while there is a round
  bool has_sent_no_more_ = false;
};

}  // namespace ciranda
