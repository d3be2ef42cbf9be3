#include "agree/planned_groups.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "agree/negotiations.hpp"
#include "agree/open_negotiations.hpp"
#include "agree/ready_queue.hpp"
#include "base/earliest.hpp"

namespace ciranda {

using Stage = PlannedGroup::Stage;

// --- reports

Status PlannedGroups::report(const GroupsMessage& message, int member, TimePoint now) {
  if (message.groups.empty()) {
    if (know(message.plan)) return Status::ok_status();
    return Status::internal(members_.rank_text(member) + " acknowledged plan " + std::to_string(message.plan) +
                            ", which does not exist");
  }
  for (const std::uint32_t number : message.groups) {
    PlannedGroup* group = find(message.plan, number);
    if (group == nullptr) {
      return Status::internal(members_.rank_text(member) + " reported group " + std::to_string(number) + " of plan " +
                              std::to_string(message.plan) + ", which does not exist");
    }
    if (Status status = report(*group, member, now); !status.ok()) return status;
  }
  return Status::ok_status();
}

Status PlannedGroups::report(PlannedGroup& group, int member, TimePoint now) {
  if (!is_countable(group)) {
    for (NameState* name : group.names) {
      touch(*name);
      if (Status status = negotiations_.report(*name, {member, now, std::nullopt, true}); !status.ok()) return status;
    }
    return Status::ok_status();
  }
  if (group.has_arrived(member)) {
    return Status::internal(members_.rank_text(member) + " reported group " + std::to_string(group.number) +
                            " before it was answered");
  }
  members_.note_report(member, group.names.back()->name, now);
  note_arrival(group, member);
  if (!group.is_open()) open(group, now);
  group.arrive(member);
  if (group.n_arrived == members_.size()) {
    members_.note_last(member, group.opened, now);
    complete(group);
  }
  return Status::ok_status();
}

Status PlannedGroups::report_by_all(const GroupsMessage& message, TimePoint now) {
  for (const std::uint32_t number : message.groups) {
    PlannedGroup* group = find(message.plan, number);
    if (group != nullptr && is_countable(*group) && !group->is_open()) {
      members_.note_report_of_all(group->names.back()->name, now);
      for (int member = 0; members_.keeps_arrivals() && member < members_.size(); ++member)
        note_arrival(*group, member);
      open(*group, now);
      complete(*group);
      continue;
    }
    for (int member = 0; member < members_.size(); ++member) {
      if (Status status = report({message.plan, {number}}, member, now); !status.ok()) return status;
    }
  }
  return Status::ok_status();
}

void PlannedGroups::note_arrival(const PlannedGroup& group, int member) {
  if (!members_.keeps_arrivals()) return;
  for (const NameState* name : group.names) members_.note_arrival(member, name->name, name->agreed.collective);
}

bool PlannedGroups::is_countable(PlannedGroup& group) {
  const bool is_current = group.learned_plan == learned_plan_;
  return is_current && !members_.has_any_joined() && group.is_whole(options_.fusion_threshold_bytes);
}

void PlannedGroups::open(PlannedGroup& group, TimePoint now) {
  group.stage = Stage::kOpen;
  group.opened = now;
  group.n_failed_before = negotiations_.n_failed();
  open_.opened(now);
}

void PlannedGroups::complete(PlannedGroup& group) {
  group.stage = Stage::kReady;
  ready_.push(group);
  negotiations_.expire_duplicates(group.n_failed_before, nullptr);
}

void PlannedGroups::close(PlannedGroup& group) {
  group.close(Stage::kWhole);
  open_.closed();
}

// --- when a name of a group is used in another way

void PlannedGroups::touch(NameState& name) {
  if (name.group == nullptr) return;
  disperse(*name.group);
  name.group->stage = Stage::kTouched;
}

// If the group is ready, all members have reported each of its names, and none has joined.
void PlannedGroups::disperse(PlannedGroup& group) {
  if (!group.is_open()) return;
  if (group.is_ready()) ready_.remove(group);
  for (NameState* name : group.names) {
    Negotiation& negotiation = name->negotiation;
    negotiations_.open(negotiation, group.opened);
    negotiation.n_failed_before = group.n_failed_before;
    for (int member = 0; member < members_.size(); ++member) {
      if (group.has_arrived(member)) negotiation.arrive(member, Arrival::kUnchanged);
    }
    if (!group.is_ready()) continue;
    negotiation.stage = Negotiation::Stage::kReady;
    ready_.push(*name);
  }
  group.close(Stage::kTouched);
  open_.closed();
}

void PlannedGroups::disperse_all() {
  for (const auto& group : current_.groups) disperse(*group);
}

std::optional<TimePoint> PlannedGroups::disperse_stalled(TimePoint now) {
  std::optional<TimePoint> next;
  for (const auto& group : current_.groups) {
    if (!group->is_open() || group->is_ready()) continue;
    const auto due = open_.first_due(group->opened);
    if (due && now >= *due) {
      disperse(*group);
    } else {
      next = earliest(next, due);
    }
  }
  return next;
}

// --- plans

std::optional<PlanEntry> PlannedGroups::publish(const LearnedOrder& order, const std::vector<NameState*>& by_cache_id) {
  if (!options_.reports_groups || order.n_groups() == 0 || order.plan() == learned_plan_) return std::nullopt;
  const bool all_know = n_knowing_ == members_.size() || current_.number == 0;
  const auto is_ready = [](const auto& group) { return group->is_ready(); };
  if (!all_know || std::any_of(current_.groups.begin(), current_.groups.end(), is_ready)) return std::nullopt;
  disperse_all();
  for (const auto& group : current_.groups) {
    for (NameState* name : group->names) name->group = nullptr;
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
    group->arrivals.resize(static_cast<std::size_t>(members_.size()));
    for (const std::uint32_t cache_id : order.cache_ids_of(number)) {
      group->names.push_back(by_cache_id[cache_id]);
      by_cache_id[cache_id]->group = group.get();
    }
    group->kind = order.kind_of(number);  // of the learned signatures; those of the names may have changed since
    entry.groups.push_back(order.cache_ids_of(number));
    current_.groups.push_back(std::move(group));
  }
  return entry;
}

// Each member acknowledges a plan once.
bool PlannedGroups::know(std::uint32_t plan) {
  if (plan == 0 || plan != current_.number || n_knowing_ == members_.size()) return false;
  if (++n_knowing_ == members_.size()) previous_.groups.clear();
  return true;
}

// Null if there is no such group, or all members know a later plan.
PlannedGroup* PlannedGroups::find(std::uint32_t plan, std::uint32_t number) {
  Plan* found = plan == current_.number ? &current_ : plan == previous_.number ? &previous_ : nullptr;
  return found == nullptr || number >= found->groups.size() ? nullptr : found->groups[number].get();
}

}  // namespace ciranda
