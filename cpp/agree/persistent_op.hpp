// PersistentOp: a call that ranks make again and again under one name on one lane (a persistent operation, as MPI 4
// calls it), as one rank knows it: whether it is in use, what its ranks have agreed on, and how its oldest pending call
// travels. It is made when its name is first used, and found once for a call (persistent_ops.hpp).
//
// Whether it is in use any thread may ask and say, and who holds it has its last request; all else is for one thread
// (the holder of the progress lock), and changed by the parts of the participant (participant.hpp), each of which has
// some fields of its own.
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
#include "agree/round_places.hpp"
#include "call/call.hpp"
#include "call/request.hpp"

namespace ciranda {

// As its caller knows a request; it gets each back exactly once, to carry out or to fail.
using Ticket = std::uint64_t;
inline constexpr Ticket kNoTicket = ~Ticket{0};

// A call that is not answered yet.
struct PendingCall {
  Ticket ticket;
  std::unique_ptr<Signature> in_full = nullptr;  // what was reported, unless it was the known one
  bool is_deferrable = false;
  bool is_numbered = false;  // a call without a name, under the number that it was given
  std::uint8_t n_sweeps = 0;
};

class PersistentOps;

class PersistentOp : public std::enable_shared_from_this<PersistentOp> {
 public:
  // `ops` has it. That of the calls without a name, as far as they come to direct rounds (unnamed.hpp), has an empty
  // name.
  PersistentOp(PersistentOps& ops, LaneId lane, std::string name) : ops_(&ops), lane_(lane), name_(std::move(name)) {}

  bool is(const PersistentOps& ops, LaneId lane, std::string_view name) const {
    return ops_ == &ops && lane_ == lane && name_ == name;
  }
  LaneId lane() const { return lane_; }
  const std::string& name() const { return name_; }
  bool is_unnamed() const { return name_.empty(); }

  // --- what its ranks agreed on

  std::uint32_t cache_id() const { return cache_id_; }
  const std::optional<Signature>& known() const { return known_; }
  const std::shared_ptr<const FirstDims>& first_dims() const { return first_dims_; }

  // --- whether it is in use

  // A call holds it from its submission to its end. False if another does, or it was removed.
  bool take() { return !is_in_use_.exchange(true, std::memory_order_acquire); }
  void release() { is_in_use_.store(false, std::memory_order_release); }

  // The request of its last call, prepared, for the next one. REQUIRES, here and below: who asks holds it.
  void keep(std::unique_ptr<Request> request) {
    if (request->is_cacheable && request->signature.tensors.size() == 1) last_request_ = std::move(request);
  }
  // Null: there is none, or it was another call's.
  std::unique_ptr<Request> request_again(const Call& call) {
    const bool is_like = last_request_ != nullptr && make_again(*last_request_, call);
    return is_like ? std::move(last_request_) : nullptr;
  }

  // --- how the oldest pending call travels

  enum class State : std::uint8_t {
    kIdle,        // none is pending
    kHeld,        // for its group; not reported yet
    kReported,    // the log answers it
    kInMemory,    // it has come to a direct round in memory; not reported, unless that is closed
    kByMessages,  // to one by messages; reported, with its input for all
  };
  static constexpr std::size_t kStates = 5;
  static bool may_follow(State from, State to);

  State state() const { return state_; }
  // REQUIRES: may_follow(state(), to).
  void become(State to);
  // No call is pending.
  bool is_idle() const { return state_ == State::kIdle; }
  // Whether the coordinator has been told of it.
  bool is_told() const { return state_ == State::kReported || state_ == State::kByMessages; }

 private:
  friend PersistentOps;
  friend class PendingCalls;
  friend class KnownNames;
  friend class DirectRounds;

  // Of no use to anybody: the log would say all again.
  bool is_blank() const { return cache_id_ == kNoCacheId && pending_.empty() && !is_unnamed(); }

  PersistentOps* const ops_;  // gone where only handles have this
  const LaneId lane_;
  const std::string name_;
  std::atomic<bool> is_in_use_{false};
  std::unique_ptr<Request> last_request_;  // of who holds it

  State state_ = State::kIdle;

  // PendingCalls has:
  std::vector<PendingCall> pending_;  // oldest first
  // Duplicates that came while the oldest was at a round by messages: to be told once that is over.
  std::size_t n_late_ = 0;

  // KnownNames:
  std::uint32_t cache_id_ = kNoCacheId;
  std::optional<Signature> known_;  // with which the cache id was last agreed; none after a round that this rank missed
  std::shared_ptr<const FirstDims> first_dims_;  // [tensor][rank], where they may differ
  std::int32_t priority_ = 0;                    // as this rank said last

  // DirectRounds:
  Direct direct_ = Direct::kNot;  // as the log has opened it; kNot again once a call goes another way
  std::uint64_t n_joins_ = 0;     // of this rank, then
  std::uint64_t next_round_ = 0;  // of the cache id, by its number; the same on all ranks
  std::optional<RoundPlace> place_;
};

// By which a caller keeps the operation of a name that it calls again: its later calls need not look the name up. It
// may outlive the operation's use, the lane and the world.
struct OpHandle {
  std::shared_ptr<PersistentOp> op = nullptr;  // before the first call
  // Saves one call looking its name up twice. Of no use once that is carried out: to have the operation costs as much
  // as a look-up.
  bool is_for_one_call = false;
};

}  // namespace ciranda
