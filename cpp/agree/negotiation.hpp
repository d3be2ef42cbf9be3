// Negotiation: the agreement of all ranks on one use of a name; it opens with the first report. NameState: the
// coordinator's state of a name: its cache id, the last agreed signature, the open negotiation, and the deferred
// errors.
//
// Called by Coordinator, Negotiations, PlannedGroups, ReadyQueue, CacheIds, Failures, OpenNegotiations, PlannedGroup
// and Standstill; plain state with queries. "Member": see members.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
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

enum class Arrival : std::uint8_t { kAbsent, kUnchanged, kInFull };  // unchanged: with the signature agreed last time

struct Negotiation {
  enum class Stage : std::uint8_t {
    kClosed,
    kDirect,     // open; the members that have arrived sent their inputs to all; all others still may
    kCancelled,  // as kDirect, but the others are asked not to send theirs
    kOpen,       // the coordinator decides
    kReady,      // complete, and waits for execution
  };

  explicit Negotiation(int n_members) : arrivals(static_cast<std::size_t>(n_members), Arrival::kAbsent) {}

  std::vector<Arrival> arrivals;
  std::vector<Signature> in_full;  // by member, valid where arrivals is kInFull; empty if that is so for no member
  std::vector<HomeId> homes;       // the same
  std::optional<Way> way = {};     // chosen anew, if some member has reported in full or has joined
  int n_arrived = 0;
  int first_missing = 0;  // all members before this one have arrived or joined, as far as is_complete() has looked
  int n_deferrable = 0;   // deferrable reports of this name, not of its group
  int n_urgent = 0;       // other reports of this name, not of its group
  Stage stage = Stage::kClosed;
  std::uint64_t direct_round = 0;     // number of the direct round, if it is one
  std::uint64_t n_failed_before = 0;  // failed negotiations of all names when this one opened
  TimePoint opened;
  TimePoint next_report;     // when a stall is reported next
  bool is_reported = false;  // whether a stall has been reported

  bool is_open() const { return stage != Stage::kClosed; }
  bool is_ready() const { return stage == Stage::kReady; }
  bool is_direct() const { return stage == Stage::kDirect || stage == Stage::kCancelled; }
  // Some members may still report.
  bool is_waiting() const { return is_open() && !is_ready(); }
  bool is_deferrable() const { return n_urgent == 0; }
  // The coordinator's own member has arrived, and some member's call is not deferrable.
  bool is_pressing() const { return n_urgent > 0 && has_arrived(0); }
  bool has_arrived(int member) const { return arrivals[static_cast<std::size_t>(member)] != Arrival::kAbsent; }
  bool has_all() const { return n_arrived == static_cast<int>(arrivals.size()); }
  bool has_full() const { return !in_full.empty(); }
  // All members that have not joined have arrived.
  bool is_complete(const Members& members);
  std::vector<std::int32_t> absent() const;
  void arrive(int member, Arrival arrival);
  // True if the member may already know that the direct round has been executed.
  bool has_arrived_directly(int member) const { return is_direct() && has_arrived(member); }
  void close();
};

struct NameState;
struct StallReport {
  std::string text;              // the message
  std::vector<int> missing;      // members that have not reported this name
  NameState* crossed = nullptr;  // reported by a missing member, but not by some member waiting here
};

struct PlannedGroup;

// One report of a name by a member.
struct Reported {
  int rank = 0;
  TimePoint when;
  std::optional<Signature> signature = {};  // none: the one agreed last time
  bool is_deferrable = false;
  std::optional<std::uint64_t> direct_round = {};  // the direct round by messages to which the report belongs
  bool is_duplicate = false;
  HomeId home = kHostHome;  // if there is a signature
};

struct NameState {
  // A failure, and the number of later calls of each member that it answers.
  struct DeferredError {
    ErrorKind kind;
    std::string text;
    bool is_duplicate;
    std::uint64_t n_failed_before;
    std::vector<std::uint8_t> n_calls;  // by member
    std::size_t n_calls_of_all;
    void drop(int member);
  };

  NameState(std::string text, bool cacheable, int n_members)
      : name(std::move(text)),
        is_cacheable(cacheable),
        negotiation(n_members),
        homes_(static_cast<std::size_t>(n_members), kHostHome) {}

  std::string name;
  bool is_cacheable;
  std::uint32_t cache_id = kNoCacheId;
  bool is_being_forgotten = false;             // ranks were told to forget its cache id, and it was not executed since
  std::uint32_t kind = kNoKind;                // of `agreed`; see learned_order.hpp
  PlannedGroup* group = nullptr;               // in the current plan
  std::int32_t priority = 0;                   // of the last report in full
  Signature agreed;                            // by all ranks, last time; with the first dimensions of one of them
  FirstDims first_dims;                        // by tensor and member, if they may differ
  Way agreed_way = Way::kHost;                 // by which ranks execute calls with the agreed signature
  std::vector<DeferredError> deferred_errors;  // the oldest first
  // Reports of members that may have completed the direct round; handled in this order when it is over here.
  std::vector<Reported> later;
  std::size_t last_failure = ~std::size_t{0};  // index among the failures to log next; invalid if none
  Negotiation negotiation;

  // The signature that a member reported. REQUIRES: it has arrived.
  const Signature& signature_of(int member) const;
  // The signature of all members that have arrived. REQUIRES: one has.
  const Signature& signature() const;
  // Compares the member that has just arrived with one that arrived before; all earlier ones agree with each other.
  // Empty if they match.
  std::string disagreement(int member, const Members& members) const;
  // Whether the root, if any, has joined. REQUIRES: the negotiation is complete.
  bool is_root_absent(const Members& members) const;
  // Why this use cannot be part of graphs, as some members want; empty: it can, or none does. REQUIRES: complete.
  std::string why_not_captured(const Members& members) const;
  // Where each member has its tensors. REQUIRES: all have arrived.
  std::vector<HomeId> homes() const;
  // The way of this use.
  Way way() const { return negotiation.way.value_or(agreed_way); }
  // What was reported in full replaces what was agreed on. REQUIRES: the negotiation is open.
  void update_agreed();
  // `is_reported`: a full report has been shown before.
  StallReport stall_report(const Members& members, TimePoint now, bool is_reported) const;

 private:
  Signature shown_signature_of(int member) const;

  std::vector<HomeId> homes_;  // by member, when the signature was agreed on
};

using NameStates = std::unordered_map<std::string, std::unique_ptr<NameState>>;

}  // namespace ciranda
