#include "negotiate/planned_groups.hpp"

#include <algorithm>
#include <utility>

namespace ciranda {

void PlannedGroup::arrive(int member) {
  arrivals[static_cast<std::size_t>(member)] = true;
  ++n_arrived;
}

void PlannedGroup::close() {
  if (n_arrived > 0) arrivals.assign(arrivals.size(), false);
  n_arrived = 0;
  is_ready = false;
}

bool PlannedGroup::is_whole(std::size_t most_bytes) {
  if (!is_touched) return true;
  if (kind == kNoKind) return false;
  n_bytes = 0;
  for (const NamedRounds* name : names) {
    if (name->round.is_open || !name->owed.empty() || name->kind != kind) return false;
    n_bytes += name->agreed.n_bytes();
  }
  if (names.size() > 1 && n_bytes > most_bytes) return false;
  is_touched = false;
  return true;
}

PlanEntry PlannedGroups::publish(const LearnedOrder& order, const std::vector<NamedRounds*>& by_cache_id) {
  for (const auto& group : current_.groups) {
    for (NamedRounds* name : group->names) name->group = nullptr;
  }
  previous_ = std::exchange(current_, {previous_.number, {}});
  current_.number = previous_.number + 1;
  learned_plan_ = order.plan();
  n_knowing_ = 0;
  PlanEntry entry{current_.number, {}};
  for (std::uint32_t number = 0; number < order.n_groups(); ++number) {
    auto group = std::make_unique<PlannedGroup>();
    group->number = number;
    group->learned_plan = learned_plan_;
    group->arrivals.resize(static_cast<std::size_t>(n_members_));
    group->is_touched = true;  // until looked at
    for (const std::uint32_t cache_id : order.cache_ids_of(number)) {
      group->names.push_back(by_cache_id[cache_id]);
      by_cache_id[cache_id]->group = group.get();
    }
    group->kind = order.kind_of(number);  // what the names were learned as; by now they may be something else
    entry.groups.push_back(order.cache_ids_of(number));
    current_.groups.push_back(std::move(group));
  }
  return entry;
}

bool PlannedGroups::know(std::uint32_t plan) {
  if (plan == 0 || plan != current_.number || n_knowing_ == n_members_) return false;
  if (++n_knowing_ == n_members_) previous_.groups.clear();
  return true;
}

PlannedGroup* PlannedGroups::find(std::uint32_t plan, std::uint32_t number) {
  Plan* found = plan == current_.number ? &current_ : plan == previous_.number ? &previous_ : nullptr;
  return found == nullptr || number >= found->groups.size() ? nullptr : found->groups[number].get();
}

}  // namespace ciranda
