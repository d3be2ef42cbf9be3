#include "agree/ready_queue.hpp"

#include <algorithm>
#include <utility>

namespace ciranda {

namespace {

// Training jobs have a few kinds; a factor that changes with every step would make one in each step.
constexpr std::size_t kMostKinds = 64;

}  // namespace

ReadyQueue::ReadyQueue(const CoordinatorOptions& options)
    : options_(options),
      order_({options.limits.planned_group_bytes, options.fusion_threshold_bytes, options.most_groups}) {}

std::uint32_t ReadyQueue::kind_of(const Signature& signature, Way way) {
  if (!info(signature.collective).reduces_for_all || way == Way::kGraph) return kNoKind;
  const auto found = std::find_if(kinds_.begin(), kinds_.end(), [&](const Kind& kind) {
    return kind.way == way && can_travel_together(kind.signature, signature);
  });
  if (found != kinds_.end()) return static_cast<std::uint32_t>(found - kinds_.begin());
  if (kinds_.size() == kMostKinds) return kNoKind;
  kinds_.push_back({signature, way});
  return static_cast<std::uint32_t>(kinds_.size() - 1);
}

void ReadyQueue::push(NameState& name) {
  add({&name, nullptr, std::nullopt, 0, name.priority});
  if (!options_.learned_order || name.cache_id == kNoCacheId) return;
  const std::uint32_t kind =
      name.negotiation.has_full() ? kind_of(name.signature(), name.way()) : name.kind;  // not its old kind
  order_.observe(name.cache_id, name.signature().n_bytes(), name.negotiation.is_deferrable() ? kind : kNoKind);
  count_for_plan();
  waiting_.back().group = order_.group_of(name.cache_id);
  waiting_.back().plan = plan_;
  if (const auto group = waiting_.back().group) ++n_in_group_[*group];
}

void ReadyQueue::add(Waiting waiting) {
  has_priorities_ = has_priorities_ || waiting.priority != 0;
  waiting_.push_back(waiting);
}

void ReadyQueue::push(PlannedGroup& group) {
  const auto is_less_urgent = [](const NameState* a, const NameState* b) { return a->priority < b->priority; };
  const auto most_urgent = std::max_element(group.names.begin(), group.names.end(), is_less_urgent);
  add({nullptr, &group, std::nullopt, 0, (*most_urgent)->priority});
  if (order_.has_plan() && order_.plan() == group.learned_plan) {
    order_.observe_group(group.number);
  } else {
    for (const NameState* name : group.names) order_.observe(name->cache_id, name->agreed.n_bytes(), name->kind);
  }
  count_for_plan();
}

void ReadyQueue::count_for_plan() {
  if (plan_ == order_.plan()) return;
  plan_ = order_.plan();
  n_in_group_.assign(order_.n_groups(), 0);
}

void ReadyQueue::remove(const NameState& name) {
  const auto found = std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& w) { return w.name == &name; });
  ungroup(*found);
  waiting_.erase(found);
}

void ReadyQueue::remove(const PlannedGroup& group) {
  std::erase_if(waiting_, [&](const Waiting& waiting) { return waiting.planned == &group; });
}

bool ReadyQueue::is_held(const Waiting& waiting) const {
  if (!waiting.group || waiting.plan != plan_ || !waiting.name->negotiation.is_deferrable()) return false;
  return n_in_group_[*waiting.group] < order_.group_size(*waiting.group);
}

void ReadyQueue::ungroup(Waiting& waiting) {
  if (waiting.group && waiting.plan == plan_) --n_in_group_[*waiting.group];
  waiting.group.reset();
}

std::vector<ReadyQueue::Batch> ReadyQueue::take(bool wire_is_idle, bool is_urgent, std::size_t n_bytes_under_way) {
  std::vector<Waiting> held;
  std::vector<Waiting> free;
  std::size_t n_free_bytes = 0;
  for (const Waiting& waiting : waiting_) {
    if (!is_urgent && is_held(waiting)) {
      held.push_back(waiting);
    } else {
      free.push_back(waiting);
      n_free_bytes += waiting.n_bytes();
    }
  }
  if (free.empty() || (!wire_is_idle && n_free_bytes < options_.limits.busy_batch_bytes)) return {};
  waiting_ = std::move(held);
  for (Waiting& waiting : free) ungroup(waiting);
  if (has_priorities_) free = most_urgent(std::move(free), wire_is_idle, n_bytes_under_way);
  return batches_of(free);
}

std::vector<ReadyQueue::Waiting> ReadyQueue::most_urgent(std::vector<Waiting> free, bool wire_is_idle,
                                                         std::size_t n_bytes_under_way) {
  std::stable_sort(free.begin(), free.end(),
                   [](const Waiting& a, const Waiting& b) { return a.priority > b.priority; });
  auto rest = free.begin();
  if (n_bytes_under_way <= options_.limits.under_way_bytes / 2) {
    std::size_t n_bytes = n_bytes_under_way;
    while (rest != free.end() && (n_bytes += rest->n_bytes()) <= options_.limits.under_way_bytes) ++rest;
    if (wire_is_idle && rest == free.begin()) ++rest;
  }
  waiting_.insert(waiting_.end(), rest, free.end());
  free.erase(rest, free.end());
  return free;
}

std::vector<ReadyQueue::Batch> ReadyQueue::batches_of(const std::vector<Waiting>& free) const {
  std::vector<Batch> batches;
  std::size_t n_batch_bytes = 0;
  for (const Waiting& waiting : free) {
    const std::size_t n_bytes = waiting.n_bytes();
    if (batches.empty() || n_batch_bytes + n_bytes > options_.fusion_threshold_bytes ||
        !can_join(batches.back(), waiting)) {
      batches.emplace_back();
      n_batch_bytes = 0;
    }
    if (waiting.planned != nullptr) {
      batches.back().groups.push_back(waiting.planned);
    } else {
      batches.back().names.push_back(waiting.name);
    }
    n_batch_bytes += n_bytes;
  }
  return batches;
}

// Calls that are captured travel alone: a rank may capture them into several graphs.
bool ReadyQueue::can_join(const Batch& batch, const Waiting& waiting) {
  if (waiting.planned != nullptr) return !batch.groups.empty() && batch.groups.front()->kind == waiting.planned->kind;
  if (batch.names.empty()) return false;
  const NameState& head = *batch.names.front();
  return head.way() == waiting.name->way() && head.way() != Way::kGraph &&
         can_travel_together(head.signature(), waiting.name->signature()) &&
         head.negotiation.absent() == waiting.name->negotiation.absent();
}

}  // namespace ciranda
