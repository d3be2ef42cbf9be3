// PersistentOp: a persistent operation (MPI-4): a call that ranks make repeatedly under one name on one lane, as one
// rank knows it: whether it is in use, what its ranks have agreed on, and how its oldest pending call is executed. It
// is created at the first use of the name; a call looks it up once (persistent_ops.hpp).
//
// Any thread may take and release it, and ask for its lane and name; the call that holds it owns its last request. All
// else is for one thread (the holder of the progress lock), and is changed by the parts of the participant
// (participant.hpp), each of which owns a part of it.
//
// Called by DirectRounds, UnnamedRounds, HeldGroups, KnownNames, Participant, PendingCalls, PersistentOps, SentInputs,
// Engine, Lane, Lanes, LaneLog, RoundsInMemory, RoundsByMessages and InFlight.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agree/messages.hpp"
#include "agree/round_rooms.hpp"
#include "call/call.hpp"
#include "call/request.hpp"

namespace ciranda {

// The caller's identifier of a request; returned exactly once, to execute or to fail the request.
using Ticket = std::uint64_t;
inline constexpr Ticket kNoTicket = ~Ticket{0};

// A call that is not answered yet.
struct PendingCall {
  Ticket ticket;
  std::unique_ptr<Signature> in_full = nullptr;  // the signature reported, unless it was the known one
  bool is_deferrable = false;
  bool is_numbered = false;  // a call without a name that has a number
  std::uint8_t n_sweeps = 0;
  HomeId home = kHostHome;
};

class PersistentOps;

// The parts of a persistent operation. Each is private to one part of the participant, which alone changes it.

class CallsOfName {
 public:
  bool empty() const { return pending_.empty(); }

 private:
  friend class PendingCalls;
  std::vector<PendingCall> pending_;  // oldest first
  // Duplicates of a call that is in a round by messages; they are reported once the round is over.
  std::size_t n_late_ = 0;
};

class KnowledgeOfName {
 public:
  std::uint32_t cache_id() const { return cache_id_; }
  const std::optional<Signature>& signature() const { return signature_; }
  const std::shared_ptr<const FirstDims>& first_dims() const { return first_dims_; }
  Way way() const { return way_; }

 private:
  friend class KnownNames;
  std::uint32_t cache_id_ = kNoCacheId;
  std::optional<Signature> signature_;           // agreed on for the cache id; none after a round that this rank missed
  std::shared_ptr<const FirstDims> first_dims_;  // [tensor][rank]; null if they cannot differ
  Way way_ = Way::kHost;                       // by the log
  HomeId home_ = kHostHome;                    // this rank's, when the signature was agreed on
  std::int32_t priority_ = 0;                    // this rank's last one
};

class RoundsOfName {
  friend class DirectRounds;
  Direct direct_ = Direct::kNot;  // as opened by the log; kNot once a call does not use a direct round
  std::uint64_t n_joins_ = 0;     // this rank's number of joins when the log opened the name
  std::uint64_t next_ = 0;        // counted for the cache id; the same on all ranks
  std::optional<ReservedRoom> room_;
};

class PersistentOp : public std::enable_shared_from_this<PersistentOp> {
 public:
  // `ops` contains this operation. All calls without a name that use direct rounds (unnamed.hpp) share one operation,
  // whose name is empty.
  PersistentOp(PersistentOps& ops, LaneId lane, std::string name) : ops_(&ops), lane_(lane), name_(std::move(name)) {}

  bool is(const PersistentOps& ops, LaneId lane, std::string_view name) const {
    return ops_ == &ops && lane_ == lane && name_ == name;
  }
  LaneId lane() const { return lane_; }
  const std::string& name() const { return name_; }
  bool is_unnamed() const { return name_.empty(); }

  // --- what its ranks have agreed on

  std::uint32_t cache_id() const { return knowledge.cache_id(); }
  const std::optional<Signature>& known() const { return knowledge.signature(); }
  const std::shared_ptr<const FirstDims>& first_dims() const { return knowledge.first_dims(); }

  CallsOfName calls;
  KnowledgeOfName knowledge;
  RoundsOfName rounds;

  // --- whether it is in use

  // A call holds the operation from its submission to its end. False if another call holds it, or if it was removed.
  bool take() { return !is_in_use_.exchange(true, std::memory_order_acquire); }
  void release() { is_in_use_.store(false, std::memory_order_release); }

  // Keeps the prepared request of the last call, for the next one. REQUIRES, here and below: the caller holds this.
  void keep(std::unique_ptr<Request> request) {
    if (request->is_cacheable && request->signature.tensors.size() == 1) last_request_ = std::move(request);
  }
  // Null if no request is kept, or if it differs from the call.
  std::unique_ptr<Request> request_again(const Call& call) {
    const bool is_like = last_request_ != nullptr && make_again(*last_request_, call);
    return is_like ? std::move(last_request_) : nullptr;
  }

  // --- how the oldest pending call is executed

  enum class State : std::uint8_t {
    kIdle,        // no call is pending
    kHeld,        // held for its group; not reported yet
    kReported,    // the log will answer it
    kInMemory,    // in a direct round in memory; not reported unless that is closed
    kByMessages,  // in a direct round by messages; reported, with its input to all
  };
  static constexpr std::size_t kStates = 5;
  static bool may_follow(State from, State to);

  State state() const { return state_; }
  // REQUIRES: may_follow(state(), to).
  void become(State to);
  // No call is pending.
  bool is_idle() const { return state_ == State::kIdle; }
  // Whether the call has been reported to the coordinator.
  bool is_reported() const { return state_ == State::kReported || state_ == State::kByMessages; }

 private:
  friend PersistentOps;

  // True if the operation can be removed, because the log would state again everything that it contains.
  bool is_blank() const { return cache_id() == kNoCacheId && calls.empty() && !is_unnamed(); }

  PersistentOps* const ops_;  // invalid once only handles refer to this operation
  const LaneId lane_;
  const std::string name_;
  std::atomic<bool> is_in_use_{false};
  std::unique_ptr<Request> last_request_;  // owned by the call that holds the operation

  State state_ = State::kIdle;
};

// A caller's pointer to the operation of a name that it calls again, so that later calls need not look the name up. It
// may outlive the use of the operation, the lane and the world.
struct OpHandle {
  std::shared_ptr<PersistentOp> op = nullptr;  // null before the first call
};

}  // namespace ciranda
