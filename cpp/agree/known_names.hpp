// KnownNames: the names of a lane as this rank has learnt them from the log: their cache ids, and the signatures agreed
// on for these. Called by Participant, HeldGroups and RoundsByMessages; pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agree/messages.hpp"
#include "agree/persistent_op.hpp"
#include "agree/persistent_ops.hpp"
#include "base/thread_annotations.hpp"
#include "call/request.hpp"

namespace ciranda {

class KnownNames {
 public:
  KnownNames(LaneId lane, PersistentOps& ops) : lane_(lane), ops_(ops) {}

  // REQUIRES: the log has assigned the cache id.
  PersistentOp& at(std::uint32_t cache_id) const { return *by_cache_id_[cache_id]; }
  // Null, here and below, if there is none.
  PersistentOp* find(std::uint32_t cache_id) const {
    return cache_id < by_cache_id_.size() ? by_cache_id_[cache_id] : nullptr;
  }
  PersistentOp* find(const std::string& name) const REQUIRES(progress_lock) { return ops_.find(lane_, name); }
  // REQUIRES: may_assign(item.cache_id).
  PersistentOp* find(const ExecuteItem& item) const REQUIRES(progress_lock) {
    return item.is_defined_here ? find(item.name) : find(item.cache_id);
  }
  // Whether the log may assign this cache id, or assigns none: new cache ids are consecutive.
  bool may_assign(std::uint32_t cache_id) const { return cache_id == kNoCacheId || cache_id <= by_cache_id_.size(); }

  // Whether the cache id alone describes the call that is to be reported.
  static bool is_unchanged(PersistentOp& op, const Request& request);
  // The log executes the oldest call of `op`. REQUIRES: item.is_defined_here, and find(item) is `op`.
  void learn(const ExecuteItem& item, PersistentOp& op) REQUIRES(progress_lock);
  // The same for a call that this rank has not made because it has joined. Its next report of the name is in full.
  void learn_without_call(const ExecuteItem& item) REQUIRES(progress_lock);
  // The next call is reported in full.
  static void forget(PersistentOp& op) { op.knowledge.signature_.reset(); }

 private:
  void assign(std::uint32_t cache_id, PersistentOp& op) REQUIRES(progress_lock);

  LaneId lane_;
  PersistentOps& ops_;
  std::vector<PersistentOp*> by_cache_id_;
};

}  // namespace ciranda
