// PersistentOps: the persistent operations of this rank, by lane and name. An operation keeps its address while it is
// in use, has a pending call, or has a cache id. The holder removes an operation by taking it and never releasing it:
// the owner of a handle then fails to take it, and looks the name up.
//
// Called by Engine and Lanes, which take, Lane, which finds, InFlight and Submission, which release, AutoNames,
// Participant, KnownNames and PendingCalls; any thread, except where a function requires the progress lock: only its
// holder removes operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "agree/messages.hpp"
#include "agree/persistent_op.hpp"
#include "base/thread_annotations.hpp"

namespace ciranda {

class PersistentOps {
 public:
  ~PersistentOps();

  // Takes the operation for a call: it is in use until release(). Null if it is already in use. Here and below, if a
  // handle is given, it is used for the look-up, and then refers to the operation.
  PersistentOp* take(LaneId lane, std::string_view name, OpHandle* handle = nullptr);
  // As take(), but does not make an operation: null also if there is none of the name.
  PersistentOp* take_known(LaneId lane, std::string_view name, OpHandle* handle = nullptr);

  // Null if there is no operation of the name. If found by the handle, the operation may have been removed.
  PersistentOp* find(LaneId lane, std::string_view name, const OpHandle* handle = nullptr) const
      REQUIRES(progress_lock);
  PersistentOp& find_or_make(LaneId lane, std::string_view name) REQUIRES(progress_lock);

  // After each of these two functions, `op` may be destroyed.
  static void release(PersistentOp& op) REQUIRES(progress_lock);
  static void remove_if_unused(PersistentOp& op) REQUIRES(progress_lock);

  // The lane has ended: forgets its operations. Those in use are removed when they are released.
  void remove_lane(LaneId lane) REQUIRES(progress_lock);

  void for_each(LaneId lane, const std::function<void(PersistentOp&)>& visit) const REQUIRES(progress_lock);

  // The number of look-ups by name so far. For tests, by Engine::n_lookups().
  std::uint64_t n_lookups() const {
    const std::lock_guard lock(mutex_);
    return n_lookups_;
  }

 private:
  struct Key {
    LaneId lane;
    std::string_view name;  // in the map: refers to the operation's own name
    bool operator==(const Key&) const = default;
  };
  struct HashKey {
    std::size_t operator()(const Key& key) const {
      constexpr std::size_t kMix = 0x9e3779b97f4a7c15;  // 2^64 divided by the golden ratio
      return std::hash<std::string_view>()(key.name) ^ key.lane * kMix;
    }
  };

  bool is_kept(const OpHandle* handle, LaneId lane, std::string_view name) const {
    return handle != nullptr && handle->op != nullptr && handle->op->is(*this, lane, name);
  }
  static PersistentOp* take(const std::shared_ptr<PersistentOp>& op, OpHandle* handle);
  // REQUIRES, here and below: the mutex.
  auto look_up(LaneId lane, std::string_view name) const { return ++n_lookups_, ops_.find({lane, name}); }
  const std::shared_ptr<PersistentOp>& made(LaneId lane, std::string_view name);
  void erase(PersistentOp& op) REQUIRES(progress_lock);

  mutable std::mutex mutex_;
  std::unordered_map<Key, std::shared_ptr<PersistentOp>, HashKey> ops_;
  mutable std::uint64_t n_lookups_ = 0;
  // The last result of find(), for callers that repeat a name without a handle.
  mutable PersistentOp* last_found_ GUARDED_BY(progress_lock) = nullptr;
};

}  // namespace ciranda
