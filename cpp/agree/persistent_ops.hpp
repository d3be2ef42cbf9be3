// PersistentOps: the persistent operations of this rank, by lane and name. One stays where it is for as long as it is
// in use, has a call pending, or has a cache id. It is removed by taking it for ever: whoever has a handle of it sees
// that, and looks the name up.
//
// Any thread may take(), and take_known(); the rest is for one thread (the holder of the progress lock), which alone
// removes any.
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

namespace ciranda {

class PersistentOps {
 public:
  ~PersistentOps();

  // For a call: it is in use from here to release(). Null if it is already. A handle, here and below, is looked into
  // first; it has the operation from then on.
  PersistentOp* take(LaneId lane, std::string_view name, OpHandle* handle = nullptr);
  // Null also if there is none of the name.
  PersistentOp* take_known(LaneId lane, std::string_view name, OpHandle* handle = nullptr);

  // Null if there is none of the name. It may have been removed if a handle has it.
  PersistentOp* find(LaneId lane, std::string_view name, const OpHandle* handle = nullptr) const;
  PersistentOp& find_or_make(LaneId lane, std::string_view name);

  // `op` may be gone after each of these.
  static void release(PersistentOp& op);
  static void remove_if_unused(PersistentOp& op);

  // The lane is no more: nothing is known of its operations. Those that are in use go when they are released.
  void remove_lane(LaneId lane);

  void for_each(LaneId lane, const std::function<void(PersistentOp&)>& visit) const;

  // How often a name was looked up.
  std::uint64_t n_lookups() const {
    const std::lock_guard lock(mutex_);
    return n_lookups_;
  }

 private:
  struct Key {
    LaneId lane;
    std::string_view name;  // in the map: the operation's own
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
  void erase(PersistentOp& op);

  mutable std::mutex mutex_;
  std::unordered_map<Key, std::shared_ptr<PersistentOp>, HashKey> ops_;
  mutable std::uint64_t n_lookups_ = 0;
  // By find(), for who calls the same name again without a handle. Only the one thread has it: no mutex.
  mutable PersistentOp* last_found_ = nullptr;
};

}  // namespace ciranda
