// Coordinator: decides, for all ranks, what is carried out and in which order.
//
// It is a pure state machine: announcements of ranks and the time go in, entries of the response log come out. It knows
// no socket, no thread and no clock. One rank of the circle runs it; every rank executes the log (participant.hpp).
//
// A *round* is one use of a name: it opens with the first announcement and ends when it is carried out or has failed.
// When something is wrong (ranks disagree, a duplicate, a rank that never comes) the round fails at once for the ranks
// that announced it, and the others *owe* it: their next announcement of the name is answered with the same error, so
// that every rank hears of it, nobody is left waiting, and the calls of all ranks stay paired.
//
// A rank that has *joined* announces nothing more: rounds are complete without it, until all ranks have joined.
//
// "Rank" is a rank's place among the members of the lane that is coordinated; texts for people show world ranks.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "negotiate/learned_order.hpp"
#include "negotiate/messages.hpp"

namespace ciranda {

using TimePoint = std::chrono::steady_clock::time_point;

struct CoordinatorOptions {
  int size = 1;
  std::vector<int> ranks;          // the members' ranks in the world, ascending; empty: 0 to size - 1
  std::vector<std::string> hosts;  // label by rank, for messages; may be empty
  std::size_t fusion_threshold_bytes = 128 << 20;
  std::size_t cache_capacity = 65536;
  bool learned_order = true;
  std::chrono::nanoseconds stall_warning{0};   // 0: never
  std::chrono::nanoseconds stall_shutdown{0};  // 0: never
};

class Coordinator {
 public:
  explicit Coordinator(CoordinatorOptions options);
  ~Coordinator();

  // --- what ranks announce, in the order in which each rank sent it; an error means that the rank breaks the rules
  Status on_request(int rank, RequestMessage message, TimePoint now);
  Status on_ready(int rank, const ReadyMessage& message, TimePoint now);
  Status on_duplicate(int rank, const DuplicateMessage& message, TimePoint now);
  Status on_join(int rank);
  void on_waiting(int rank);
  bool has_waiting_rank() const { return n_waiting_ > 0; }

  // Fails every open round with `why`: the lane ends.
  void fail_all(const Status& why);

  // The entries to append to the log now. While the wire is busy, small requests are kept back to travel together.
  std::vector<LogEntry> take_entries(bool wire_is_idle);

  // --- ranks that never come
  struct StallReport {
    std::string text;          // for a person
    std::vector<int> missing;  // the ranks not heard of for this name
  };
  // Names that have waited longer than the warning time since the last report; fails those over the shutdown time.
  std::vector<StallReport> check_stalls(TimePoint now);
  // When check_stalls should next be called; none while nothing waits.
  std::optional<TimePoint> next_stall_check() const { return stall_check_due_; }

 private:
  struct Round;
  struct Name;
  struct Duplicate {
    int rank;
    bool was_pending;  // its first call is not answered yet
  };
  struct PlannedGroup {
    std::uint64_t plan;
    std::uint32_t index;
  };
  enum class Arrival : std::uint8_t { kAbsent, kUnchanged, kInFull };

  Name& name_for(const std::string& name, bool is_cacheable);
  void arrive(Name& name, int rank, Arrival arrival, TimePoint now);
  Status announce(Name& name, int rank, std::optional<Signature> signature, bool is_deferrable, TimePoint now);
  std::string disagreement(const Name& name, int rank) const;
  const Signature& signature_of(const Name& name, int rank) const;
  const Signature& signature_of(const Name& name) const;
  Signature shown_signature_of(const Name& name, int rank) const;
  bool answer_owed(Name& name, int rank);
  // Each rank that announced the round is told once, the one that did so twice (`duplicate`) twice; the rest owe it.
  void fail_round(Name& name, ErrorKind kind, const std::string& text,
                  std::optional<Duplicate> duplicate = std::nullopt);
  void forgive_duplicates(const Round& round);
  bool is_complete(const Round& round) const;
  bool is_root_absent(const Name& name) const;
  void complete_round(Name& name);
  void forgive_joined(int rank);
  std::vector<std::int32_t> absent_from(const Round& round) const;
  void close_round(Name& name);
  void forget_if_unused(Name& name);
  void became_ready(Name& name);
  void take_ready(bool wire_is_idle, std::vector<LogEntry>& entries);
  bool is_held(const Name& name) const;
  void leave_group(Name& name);
  ExecuteItem execute_item(Name& name);
  void update_agreed(Name& name);
  void assign_slot(Name& name);
  bool can_travel_with(Name& head, Name& other, std::size_t n_bytes) const;
  int world_rank(int rank) const { return options_.ranks[static_cast<std::size_t>(rank)]; }
  std::string rank_text(int rank) const;
  StallReport describe_stall(const Name& name, TimePoint now) const;
  std::optional<TimePoint> first_due(const Round& round) const;

  CoordinatorOptions options_;
  std::unordered_map<std::string, std::unique_ptr<Name>> names_;
  std::vector<Name*> slots_;
  std::deque<Name*> ready_;  // rounds complete, in the order of completion
  std::size_t n_open_rounds_ = 0;
  std::optional<TimePoint> stall_check_due_;  // no later than the first report of an open round
  std::vector<LogEntry> failures_;            // and joins: what goes into the log before what is carried out
  std::vector<Name*> owed_duplicates_;        // names some rank owes a duplicate's error
  std::uint64_t n_failed_rounds_ = 0;
  LearnedOrder order_;
  std::uint64_t plan_ = 0;               // that n_in_group_ counts for
  std::vector<std::size_t> n_in_group_;  // ready requests by planned group
  std::vector<bool> is_waiting_;
  int n_waiting_ = 0;
  std::vector<bool> has_joined_;
  int n_joined_ = 0;
  std::optional<int> last_joined_;      // all have joined, this one as the last; the log does not say so yet
  std::vector<std::string> last_name_;  // by rank: what it last announced
  std::vector<TimePoint> last_announced_;
};

}  // namespace ciranda
