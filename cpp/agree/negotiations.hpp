// Negotiations: the negotiations of all names of a lane, on its coordinator. A first report opens one. It ends when its
// call is put into the log, when it has failed, or when all members have arrived at a direct round by messages
// (sent_inputs.hpp).
//
// On an error (members disagree, a duplicate, a missing member) the negotiation fails at once for the members that
// reported it. For the others it is a *deferred error*: their next report of the name gets it (failures.hpp).
//
// While all members may still arrive at a direct round by messages, the coordinator decides nothing, because a member
// with all inputs executes the call by itself. Once one member will not arrive, no member will have all inputs, and the
// negotiation becomes an ordinary one. If a member that has arrived reports the name again, it has seen the end of the
// direct round before the coordinator has: that report is kept for later.
//
// Called by Coordinator and PlannedGroups; pure. "Member": see members.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agree/cache_ids.hpp"
#include "agree/coordinator_options.hpp"
#include "agree/failures.hpp"
#include "agree/members.hpp"
#include "agree/messages.hpp"
#include "agree/negotiation.hpp"
#include "agree/open_negotiations.hpp"
#include "agree/ready_queue.hpp"
#include "agree/standstill.hpp"
#include "agree/ways.hpp"

namespace ciranda {

class Negotiations {
 public:
  // The arguments outlive this object.
  Negotiations(const CoordinatorOptions& options, Members& members, CacheIds& cache_ids, ReadyQueue& ready,
               OpenNegotiations& open_negotiations)
      : options_(options),
        members_(members),
        cache_ids_(cache_ids),
        ready_(ready),
        open_(open_negotiations),
        ways_(options) {}
  Negotiations(const Negotiations&) = delete;  // other parts of the coordinator refer to it

  NameState& name_for(const std::string& name, bool is_cacheable);

  // An error means that the member violates the protocol.
  Status report(NameState& name, Reported reported);
  // Some member has not arrived at this direct round by messages, and will not.
  void abandon_direct_round(Negotiation& negotiation);
  // The member reports nothing more, and has no deferred errors.
  void join(int member);

  // Whether some call cannot be deferred and may lack only reports of ranks other than the coordinator's.
  bool has_pressing() const { return n_pressing_ > 0; }

  // For the parts that put calls into the log, or count reports by group.
  void open(Negotiation& negotiation, TimePoint now);
  void close(NameState& name);
  void forget_if_unused(NameState& name);
  std::uint64_t n_failed() const { return failures_.n_failed(); }
  bool has_deferred_duplicates() const { return failures_.has_deferred_duplicates(); }
  // All members have taken part in a negotiation that opened after n_failed_before failures. The name of `negotiation`
  // is kept.
  void expire_duplicates(std::uint64_t n_failed_before, const Negotiation* negotiation);

  void fail_all(const Status& why);
  // As OpenNegotiations::check().
  std::vector<StallReport> check_stalls(std::optional<TimePoint> groups_due, TimePoint now);
  // Ends all negotiations if the members wait for each other for ever. REQUIRES: as for Standstill::holds().
  void check_standstill(const Standstill& standstill);

  // Failed negotiations and cancelled direct rounds; they go into the log before calls to execute.
  void take_ended(std::vector<LogEntry>& entries);

 private:
  Status handle(NameState& name, Reported reported);
  Status handle_later(NameState& name);
  Status end_direct_round(NameState& name);
  void arrive(NameState& name, const Reported& reported);
  void complete(NameState& name);
  void end(const Stalls& found);
  void fail(NameState& name, ErrorKind kind, const std::string& text,
            const std::optional<DuplicateCall>& duplicate = std::nullopt, bool fails_late_calls = true);

  const CoordinatorOptions& options_;
  Members& members_;
  CacheIds& cache_ids_;
  ReadyQueue& ready_;
  OpenNegotiations& open_;
  Ways ways_;
  NameStates names_;
  std::size_t n_pressing_ = 0;
  Failures failures_;
  std::vector<CancelEntry> cancelled_;
};

}  // namespace ciranda
