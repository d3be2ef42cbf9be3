// Rounds: the rounds of all names of a lane, as its coordinator sees them through: a first report opens one, and it
// ends when it is carried out, when it has failed, or when all members have come to it by messages
// (sent_inputs.hpp).
//
// When something is wrong (members disagree, a duplicate, one that never comes) the round fails at once for those that
// reported it, and the others *owe* it: their next report of the name is answered with the same error (failures.hpp).
//
// Of a round to which all members come by messages nothing is decided here: whoever has all inputs knows as much. So
// nothing else may be decided either, as long as all may yet come so; once one will not, none will have all inputs, and
// the round is one like any other. A member that says more about the name than that it has come has seen the end of
// the round before the coordinator: that is kept for later.
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
  // All of these outlive it.
  Rounds(const CoordinatorOptions& options, Members& members, CacheIds& cache_ids, ReadyQueue& ready,
         OpenRounds& open_rounds)
      : options_(options), members_(members), cache_ids_(cache_ids), ready_(ready), open_(open_rounds) {}
  Rounds(const Rounds&) = delete;  // others of the coordinator know it

  NamedRounds& name_for(const std::string& name, bool is_cacheable);

  // An error means that the member breaks the rules.
  Status report(NamedRounds& name, Reported reported);
  // One has not come to this round by messages, and will not.
  void end_hope_of_direct_round(Round& round);
  // The member reports nothing more, and owes nothing.
  void join(int member);

  // Whether some rank's call cannot be deferred, for which other ranks' reports may be all that lacks: the
  // coordinator's rank has made its own.
  bool has_pressing() const { return n_pressing_ > 0; }

  // For who carries rounds out, or counts them in groups.
  void open(Round& round, TimePoint now);
  void close(NamedRounds& name);
  void forget_if_unused(NamedRounds& name);
  std::uint64_t n_failed() const { return failures_.n_failed(); }
  bool are_duplicates_owed() const { return failures_.are_duplicates_owed(); }
  // All members have taken part in a round, which opened when n_failed_before had failed. `round`: whose name stays.
  void forgive_duplicates(std::uint64_t n_failed_before, const Round* round);

  void fail_all(const Status& why);
  // As OpenRounds::check().
  std::vector<StallReport> check_stalls(std::optional<TimePoint> groups_due, TimePoint now);
  // Ends all of them, if the members wait for each other for ever. REQUIRES: as of Standstill::holds().
  void check_standstill(const Standstill& standstill);

  // What failed or is cancelled; it goes into the log before what is carried out.
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
