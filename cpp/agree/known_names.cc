#include "agree/known_names.hpp"

#include <memory>
#include <utility>

#include "agree/direct_rounds.hpp"
#include "agree/pending_calls.hpp"

namespace ciranda {

// A call that is captured is always told in full, so that it is in no group that is reported by its number.
bool KnownNames::is_unchanged(PersistentOp& op, const Request& request) {
  const bool is_same_priority = std::exchange(op.knowledge.priority_, request.priority) == request.priority;
  return is_same_priority && !is_captured(request.home) && op.knowledge.home_ == request.home &&
         op.knowledge.cache_id_ != kNoCacheId && op.knowledge.signature_ == request.signature;
}

void KnownNames::learn(const ExecuteItem& item, PersistentOp& op) {
  if (const auto reported = PendingCalls::take_signature(op)) {
    op.knowledge.signature_ = std::move(*reported);
    op.knowledge.home_ = PendingCalls::home(op);
  }
  op.knowledge.first_dims_ = item.first_dims.empty() ? nullptr : std::make_shared<const FirstDims>(item.first_dims);
  op.knowledge.way_ = item.way;
  if (item.cache_id != kNoCacheId) assign(item.cache_id, op);
}

void KnownNames::learn_without_call(const ExecuteItem& item) {
  if (item.cache_id == kNoCacheId) return;
  PersistentOp& op = ops_.find_or_make(lane_, item.name);
  forget(op);
  DirectRounds::close(op);
  assign(item.cache_id, op);
}

// All ranks have forgotten the name that had the cache id before; this rank may have called it again since, in full.
void KnownNames::assign(std::uint32_t cache_id, PersistentOp& op) {
  op.knowledge.cache_id_ = cache_id;
  if (cache_id >= by_cache_id_.size()) by_cache_id_.resize(std::size_t{cache_id} + 1, nullptr);
  PersistentOp* before = std::exchange(by_cache_id_[cache_id], &op);
  if (before == nullptr || before == &op) return;
  before->knowledge.cache_id_ = kNoCacheId;
  forget(*before);
  DirectRounds::hand_over(*before, op);
  PersistentOps::remove_if_unused(*before);
}

}  // namespace ciranda
