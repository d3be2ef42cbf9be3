// Rounds: the rounds of all names of a lane, on its coordinator. A first report opens a round. The round ends when it
// is executed, when it has failed, or when all members have come to it by messages (sent_inputs.hpp).
//
// On an error (members disagree, a duplicate, a missing member) the round fails at once for the members that reported
// it. The others *owe* it: their next report of the name gets the same error (failures.hpp).
//
// The coordinator decides nothing about a round by messages while all members may still come to it, because a member
// with all inputs executes it by itself. Once one member will not come, no member will have all inputs, and the round
// becomes an ordinary one. If a member that has come reports the name again, it has seen the end of the round before
// the coordinator has: that report is kept for later.
//
// Pure. "Member": see members.hpp.
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
#include "agree/open_rounds.hpp"
#include "agree/ready_queue.hpp"
#include "agree/round.hpp"
#include "agree/standstill.hpp"

namespace ciranda {

class Rounds {
 public:
  // The arguments outlive this object.
  Rounds(const CoordinatorOptions& options, Members& members, CacheIds& cache_ids, ReadyQueue& ready,
         OpenRounds& open_rounds)
      : options_(options), members_(members), cache_ids_(cache_ids), ready_(ready), open_(open_rounds) {}
  Rounds(const Rounds&) = delete;  // other parts of the coordinator refer to it

  NamedRounds& name_for(const std::string& name, bool is_cacheable);

  // An error means that the member violates the protocol.
  Status report(NamedRounds& name, Reported reported);
  // Some member has not come to this round by messages, and will not.
  void end_hope_of_direct_round(Round& round);
  // The member reports nothing more, and owes nothing.
  void join(int member);

  // Whether some call cannot be deferred and may lack only reports of ranks other than the coordinator's.
  bool has_pressing() const { return n_pressing_ > 0; }

  // For the parts that execute rounds, or count them by group.
  void open(Round& round, TimePoint now);
  void close(NamedRounds& name);
  void forget_if_unused(NamedRounds& name);
  std::uint64_t n_failed() const { return failures_.n_failed(); }
  bool are_duplicates_owed() const { return failures_.are_duplicates_owed(); }
  // All members have taken part in a round that opened after n_failed_before failures. The name of `round` is kept.
  void forgive_duplicates(std::uint64_t n_failed_before, const Round* round);

  void fail_all(const Status& why);
  // As OpenRounds::check().
  std::vector<StallReport> check_stalls(std::optional<TimePoint> groups_due, TimePoint now);
  // Ends all rounds if the members wait for each other for ever. REQUIRES: as for Standstill::holds().
  void check_standstill(const Standstill& standstill);

  // Failed and cancelled rounds; they go into the log before rounds to execute.
  void take_ended(std::vector<LogEntry>& entries);

 private:
  Status hear(NamedRounds& name, Reported reported);
  Status hear_later(NamedRounds& name);
  Status end_direct_round(NamedRounds& name);
  void arrive(NamedRounds& name, const Reported& reported);
  void complete(NamedRounds& name);
  void end(const Stalls& found);
  void fail(NamedRounds& name, ErrorKind kind, const std::string& text,
            const std::optional<DuplicateCall>& duplicate = std::nullopt, bool is_owed = true);

  const CoordinatorOptions& options_;
  Members& members_;
  CacheIds& cache_ids_;
  ReadyQueue& ready_;
  OpenRounds& open_;
  RoundsByName names_;
  std::size_t n_pressing_ = 0;
  Failures failures_;
  std::vector<CancelEntry> cancelled_;
};

}  // namespace ciranda
