// PersistentOps: the persistent operations of this rank, by lane and name. One stays where it is for as long as it is
// in use, has a call pending, or has a cache id.
//
// Any thread may take(); the rest is for one thread (the holder of the progress lock), which alone removes any.
#pragma once

#include <cstddef>
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
  // For a call: it is in use from here to release(). Null if it is already.
  PersistentOp* take(LaneId lane, std::string_view name);

  // Null if there is none of the name.
  PersistentOp* find(LaneId lane, std::string_view name) const;
  PersistentOp& find_or_make(LaneId lane, std::string_view name);

  // `op` may be gone after each of these.
  static void release(PersistentOp& op);
  static void remove_if_unused(PersistentOp& op);

  // The lane is no more: nothing is known of its operations. Those that are in use go when they are released.
  void remove_lane(LaneId lane);

  void for_each(LaneId lane, const std::function<void(PersistentOp&)>& visit) const;

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

  PersistentOp& made(LaneId lane, std::string_view name);

  mutable std::mutex mutex_;
  std::unordered_map<Key, std::unique_ptr<PersistentOp>, HashKey> ops_;
};

}  // namespace ciranda
