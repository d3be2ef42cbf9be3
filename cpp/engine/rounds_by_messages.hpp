// RoundsByMessages: this rank's calls in direct rounds by messages: it sends its input to all members, receives theirs
// (agree/sent_inputs.hpp) and combines them, without an answer of the log. Also the inputs that it sends along with a
// report, for the log to bring to all.
//
// "Member" is a rank of the lane. One thread (the holder of the progress lock).
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "agree/sent_inputs.hpp"
#include "base/agreement_limits.hpp"
#include "engine/lane_parts.hpp"
#include "engine/liveness_probe.hpp"

namespace ciranda {

class RoundsByMessages {
 public:
  // The logger outlives this.
  RoundsByMessages(const LaneParts& lane, const Config& config, const StallLimits& patience, const Logger& logger);

  // Whether the call goes so: it is then pending until all have sent theirs, or the log answers it.
  bool come(PersistentOp& op, Ticket ticket, TimePoint now);
  // The log has answered it.
  void forget(Ticket ticket) {
    if (!inputs_.empty()) inputs_.forget(ticket);
  }
  Status hear(int from, InputMessage message, TimePoint now);
  // Of those of which all inputs are there.
  Status carry_out(TimePoint now);

  // This rank has sent others what it contributes, and waits for what they contribute.
  bool empty() const { return inputs_.empty(); }
  // Not ok: one of those whom it waits for has been silent for too long.
  Status look_for_silence(TimePoint now) { return empty() ? Status::ok_status() : probe_.look(now); }
  std::optional<TimePoint> due() const { return empty() ? std::nullopt : probe_.due(); }

  // The member sends no more.
  void hear_end(int from) { inputs_.hear_end(from); }
  // Nor does this rank, as new calls are refused: whoever lacks its input to a round knows then that it will not come.
  void say_no_more();
  // Those that lack what will not come.
  void fail_lost(const Status& why);
  void clear() { inputs_.clear(); }

  // What travels along with the report of a request: something, if it is small and somebody waits for it.
  std::span<const std::byte> input_along(const Request& request) const;
  bool sends_along(const Signature& signature) const;

 private:
  const LaneParts lane_;
  const AgreementLimits limits_;
  const bool goes_by_messages_;  // the coordinator decides who does; whatever this rank's own settings say
  const bool contributes_inputs_;
  const Logger& logger_;
  SentInputs inputs_;
  LivenessProbe probe_;  // while there is a round
  bool has_said_no_more_ = false;
};

}  // namespace ciranda
