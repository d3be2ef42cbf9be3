// Round: one use of a name; it opens with the first report. NamedRounds: all that the coordinator knows about a
// name: its cache id, what was agreed the last time, the round that is open, and the answers that members still owe.
//
// Plain state with questions that can be asked of it; the coordinator decides. "Member": see members.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "agree/learned_order.hpp"
#include "agree/members.hpp"
#include "agree/messages.hpp"
#include "base/status.hpp"
#include "call/request.hpp"

namespace ciranda {

enum class Arrival : std::uint8_t { kAbsent, kUnchanged, kInFull };  // unchanged: with what was agreed the last time

struct Round {
  enum class Stage : std::uint8_t {
    kClosed,
    kDirect,     // open; all that have arrived sent their inputs to all, and all others still may
    kCancelled,  // likewise, but the others are asked not to
    kOpen,       // the coordinator decides
    kReady,      // complete, and waits to be carried out
  };

  explicit Round(int n_members) : arrivals(static_cast<std::size_t>(n_members), Arrival::kAbsent) {}

  std::vector<Arrival> arrivals;
  std::vector<Signature> in_full;  // by member, where arrivals says so; empty if nobody's is
  std::vector<std::byte> inputs;   // of the members that reported along with theirs, each at its place
  int n_inputs = 0;
  int n_arrived = 0;
  int first_missing = 0;  // members before this one have arrived or joined, as far as is_complete() has looked
  int n_deferrable = 0;   // reports, of their own and not of a group
  int n_urgent = 0;       // the others of these
  Stage stage = Stage::kClosed;
  std::uint64_t direct_round = 0;     // of a direct one, its number
  std::uint64_t n_failed_before = 0;  // failed rounds of all names when this one opened
  TimePoint opened;
  TimePoint next_report;  // if it stalls
  bool is_told = false;   // that it has

  bool is_open() const { return stage != Stage::kClosed; }
  bool is_ready() const { return stage == Stage::kReady; }
  bool is_direct() const { return stage == Stage::kDirect || stage == Stage::kCancelled; }
  // Something lacks that members may still report.
  bool is_waiting() const { return is_open() && !is_ready(); }
  bool is_deferrable() const { return n_urgent == 0; }
  // The coordinator's member has arrived, and one for which it is not deferrable.
  bool is_pressing() const { return n_urgent > 0 && has_arrived(0); }
  bool has_arrived(int member) const { return arrivals[static_cast<std::size_t>(member)] != Arrival::kAbsent; }
  bool has_all() const { return n_arrived == static_cast<int>(arrivals.size()); }
  bool has_full() const { return !in_full.empty(); }
  // All are here that have not joined.
  bool is_complete(const Members& members);
  std::vector<std::int32_t> absent() const;
  void arrive(int member, Arrival arrival);
  // `most_bytes`: of all members; larger inputs take their own way.
  void contribute(int member, std::span<const std::byte> input, std::size_t most_bytes);
  // It may know already that the round is carried out.
  bool has_come_directly(int member) const { return is_direct() && has_arrived(member); }
  bool has_all_inputs() const { return n_inputs == static_cast<int>(arrivals.size()); }
  void close();
};

struct NamedRounds;
struct StallReport {
  std::string text;                // for a person
  std::vector<int> missing;        // the members not heard of for this name
  NamedRounds* crossed = nullptr;  // what one of them has reported instead, and one of those who wait here has not
};

struct PlannedGroup;

// What a member has reported under a name.
struct Reported {
  int rank = 0;
  TimePoint when;
  std::optional<Signature> signature = {};  // none: the one it had last time
  bool is_deferrable = false;
  std::optional<std::uint64_t> direct_round = {};  // to which it came by messages
  bool is_duplicate = false;
  std::vector<std::byte> input = {};
};

struct NamedRounds {
  // A failure, and the calls of members that it answers once they are made.
  struct Owed {
    ErrorKind kind;
    std::string text;
    bool is_duplicate;
    std::uint64_t n_failed_before;
    std::vector<std::uint8_t> n_calls;  // by member
    std::size_t n_calls_of_all;
    void forgive(int member);
  };

  NamedRounds(std::string text, bool cacheable, int n_members)
      : name(std::move(text)), is_cacheable(cacheable), round(n_members) {}

  std::string name;
  bool is_cacheable;
  std::uint32_t cache_id = kNoCacheId;
  bool is_being_forgotten = false;  // ranks were told to, and it was not carried out since
  std::uint32_t kind = kNoKind;     // of `agreed`; see learned_order.hpp
  PlannedGroup* group = nullptr;    // in the plan that ranks report by
  std::int32_t priority = 0;        // what the last member that reported in full said
  Signature agreed;                 // what all ranks had last time; the first dimensions of one of them
  FirstDims first_dims;             // by tensor and member, where they may differ
  std::vector<Owed> owed;           // the oldest first
  // By members for whom the open round, a direct one, may be over: heard when it is, in this order.
  std::vector<Reported> later;
  std::size_t last_failure = ~std::size_t{0};  // its place among those that go into the log next, if it is there
  Round round;

  // What a member reported. REQUIRES: it has arrived.
  const Signature& signature_of(int member) const;
  // What all that have arrived agree on. REQUIRES: one has.
  const Signature& signature() const;
  // Compares the member that has just arrived with another that was there before; all those agree with each other.
  // Empty if they can go together.
  std::string disagreement(int member, const Members& members) const;
  // Whether it has a root, and that has joined. REQUIRES: the round is complete.
  bool is_root_absent(const Members& members) const;
  // What was sent in full replaces what was agreed before. REQUIRES: the round is open.
  void update_agreed();
  // `is_told`: people know more of it already.
  StallReport stall_report(const Members& members, TimePoint now, bool is_told) const;

 private:
  Signature shown_signature_of(int member) const;
};

using RoundsByName = std::unordered_map<std::string, std::unique_ptr<NamedRounds>>;

}  // namespace ciranda
