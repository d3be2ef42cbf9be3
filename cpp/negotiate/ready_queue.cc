#include "negotiate/ready_queue.hpp"

#include <algorithm>
#include <utility>

namespace ciranda {

namespace {

// A planned group of this size keeps the wire busy for longer than one agreement takes, on every transport we know.
constexpr std::size_t kPlannedGroupBytes = 1 << 20;
// While the wire is busy at least this much must have gathered before another entry is worth its overhead.
constexpr std::size_t kBusyBatchBytes = 4 << 20;

}  // namespace

ReadyQueue::ReadyQueue(bool learns_order, std::size_t max_batch_bytes)
    : learns_order_(learns_order), max_batch_bytes_(max_batch_bytes), order_(kPlannedGroupBytes) {}

void ReadyQueue::push(NamedRounds& name) {
  waiting_.push_back({&name, std::nullopt, 0});
  if (!learns_order_ || name.slot == kNoSlot) return;
  order_.observe(name.slot, name.agreed.n_bytes());
  if (plan_ != order_.plan()) {
    plan_ = order_.plan();
    n_in_group_.assign(order_.n_groups(), 0);
  }
  waiting_.back().group = order_.group_of(name.slot);
  waiting_.back().plan = plan_;
  if (const auto group = waiting_.back().group) ++n_in_group_[*group];
}

void ReadyQueue::remove(NamedRounds& name) {
  const auto found = std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& w) { return w.name == &name; });
  leave_group(*found);
  waiting_.erase(found);
}

bool ReadyQueue::is_held(const Waiting& waiting) const {
  if (!waiting.name->round.is_deferrable || !waiting.group || waiting.plan != plan_) return false;
  return n_in_group_[*waiting.group] < order_.group_size(*waiting.group);
}

void ReadyQueue::leave_group(const Waiting& waiting) {
  if (waiting.group && waiting.plan == plan_) --n_in_group_[*waiting.group];
}

std::vector<ReadyQueue::Batch> ReadyQueue::take(bool wire_is_idle, bool is_urgent) {
  std::vector<Waiting> held;
  std::vector<Waiting> free;
  std::size_t n_free_bytes = 0;
  for (const Waiting& waiting : waiting_) {
    if (!is_urgent && is_held(waiting)) {
      held.push_back(waiting);
    } else {
      free.push_back(waiting);
      n_free_bytes += waiting.name->signature().n_bytes();
    }
  }
  if (free.empty() || (!wire_is_idle && n_free_bytes < kBusyBatchBytes)) return {};
  waiting_ = std::move(held);
  Batch names;
  for (const Waiting& waiting : free) {
    leave_group(waiting);
    names.push_back(waiting.name);
  }
  return batches_of(names);
}

std::vector<ReadyQueue::Batch> ReadyQueue::batches_of(const Batch& names) const {
  std::vector<Batch> batches;
  std::size_t n_batch_bytes = 0;
  for (NamedRounds* name : names) {
    const std::size_t n_bytes = name->signature().n_bytes();
    if (batches.empty() || n_batch_bytes + n_bytes > max_batch_bytes_ ||
        !can_travel_with(*batches.back().front(), *name)) {
      batches.emplace_back();
      n_batch_bytes = 0;
    }
    batches.back().push_back(name);
    n_batch_bytes += n_bytes;
  }
  return batches;
}

bool ReadyQueue::can_travel_with(const NamedRounds& head, const NamedRounds& other) {
  const Signature& a = head.signature();
  const Signature& b = other.signature();
  return a.collective == Collective::kAllreduce && b.collective == Collective::kAllreduce && a.op == b.op &&
         a.prescale == b.prescale && a.postscale == b.postscale && a.is_weighted == b.is_weighted &&
         a.divides_by_all == b.divides_by_all && a.tensors.front().dtype == b.tensors.front().dtype &&
         head.round.absent() == other.round.absent();
}

}  // namespace ciranda
