// KnownNames: what this rank has learnt of a lane's names from the log: which cache ids they have, and what was agreed
// on for these. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agree/messages.hpp"
#include "agree/persistent_op.hpp"
#include "agree/persistent_ops.hpp"
#include "call/request.hpp"

namespace ciranda {

class KnownNames {
 public:
  KnownNames(LaneId lane, PersistentOps& ops) : lane_(lane), ops_(ops) {}

  // REQUIRES: the log has given it to a name.
  PersistentOp& at(std::uint32_t cache_id) const { return *by_cache_id_[cache_id]; }
  // Null, here and below, if there is none.
  PersistentOp* find(std::uint32_t cache_id) const {
    return cache_id < by_cache_id_.size() ? by_cache_id_[cache_id] : nullptr;
  }
  PersistentOp* find(const std::string& name) const { return ops_.find(lane_, name); }
  // REQUIRES: may_assign(item.cache_id).
  PersistentOp* find(const ExecuteItem& item) const {
    return item.is_defined_here ? find(item.name) : find(item.cache_id);
  }
  // Whether the log may give it to a name, or says that none is given: cache ids come in order.
  bool may_assign(std::uint32_t cache_id) const { return cache_id == kNoCacheId || cache_id <= by_cache_id_.size(); }

  // Whether the cache id says all of the call that is to be reported.
  static bool is_unchanged(PersistentOp& op, const Request& request);
  // The log executes the oldest call of the operation. REQUIRES: find(item) is `op`, and it is defined there.
  void learn(const ExecuteItem& item, PersistentOp& op);
  // The same of a call that this rank has not made, as it has joined: the next time that it uses the name it must say
  // in full what it means.
  void learn_without_call(const ExecuteItem& item);
  // The next call is reported in full.
  static void forget(PersistentOp& op) { op.known_.reset(); }

 private:
  void assign(std::uint32_t cache_id, PersistentOp& op);

  LaneId lane_;
  PersistentOps& ops_;
  std::vector<PersistentOp*> by_cache_id_;
};

}  // namespace ciranda
