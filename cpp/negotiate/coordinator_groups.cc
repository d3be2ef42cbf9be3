// Coordinator: the part that counts reports of groups.
#include <algorithm>
#include <string>
#include <utility>

#include "negotiate/coordinator.hpp"

namespace ciranda {

Status Coordinator::on_groups(int rank, const GroupsMessage& message, TimePoint now) {
  if (message.groups.empty()) {
    if (groups_.know(message.plan)) return Status::ok_status();
    return Status::internal(members_.rank_text(rank) + " knows plan " + std::to_string(message.plan) +
                            ", which there is not");
  }
  for (const std::uint32_t number : message.groups) {
    PlannedGroup* group = groups_.find(message.plan, number);
    if (group == nullptr) {
      return Status::internal(members_.rank_text(rank) + " reported group " + std::to_string(number) + " of plan " +
                              std::to_string(message.plan) + ", which there is not");
    }
    if (Status status = report(*group, rank, now); !status.ok()) return status;
  }
  return Status::ok_status();
}

Status Coordinator::report(PlannedGroup& group, int rank, TimePoint now) {
  const bool is_current = group.learned_plan == groups_.learned_plan();
  if (!is_current || members_.has_any_joined() || !group.is_whole(groups_.most_bytes())) {
    for (NamedRounds* name : group.names) {
      if (Status status = report(*name, {rank, now, std::nullopt, true}); !status.ok()) return status;
    }
    return Status::ok_status();
  }
  if (group.has_arrived(rank)) {
    return Status::internal(members_.rank_text(rank) + " reported group " + std::to_string(group.number) +
                            " before it was answered");
  }
  members_.heard(rank, group.names.back()->name, now);
  if (!group.is_open()) open(group, now);
  group.arrive(rank);
  if (group.n_arrived == options_.size) complete(group);
  return Status::ok_status();
}

void Coordinator::open(PlannedGroup& group, TimePoint now) {
  group.opened = now;
  group.n_failed_before = n_failed_rounds_;
  ++n_open_rounds_;
  if (!stall_check_due_) stall_check_due_ = first_due(now, now + options_.stall_warning);
}

void Coordinator::complete(PlannedGroup& group) {
  group.is_ready = true;
  ready_.push(group);
  forgive_duplicates(group.n_failed_before, nullptr);
}

void Coordinator::close(PlannedGroup& group) {
  group.close();
  if (--n_open_rounds_ == 0) stall_check_due_.reset();
}

// --- through relays

Status Coordinator::on_relayed(const RelayedMessage& relayed, TimePoint now) {
  for (const RelayedMessage::Item& item : relayed.items) {
    const auto* groups = std::get_if<GroupsMessage>(&item.report);
    if (item.ranks.empty() && groups != nullptr) {
      if (Status status = report_by_all(*groups, now); !status.ok()) return status;
    }
    for (const std::int32_t rank : item.ranks) {
      if (rank < 0 || rank >= options_.size) return Status::internal("a relay speaks for a rank that there is not");
      Message message = std::visit([](const auto& said) { return Message(said); }, item.report);
      if (Status status = on_message(rank, std::move(message), now); !status.ok()) return status;
    }
  }
  is_waited_for_ = relayed.is_waiting;
  return Status::ok_status();
}

// What it costs does not depend on how many ranks there are, nor on how many names the groups have.
Status Coordinator::report_by_all(const GroupsMessage& message, TimePoint now) {
  for (const std::uint32_t number : message.groups) {
    PlannedGroup* group = groups_.find(message.plan, number);
    const bool is_whole = group != nullptr && groups_.is_current(message.plan) && !members_.has_any_joined() &&
                          group->is_whole(groups_.most_bytes());
    if (is_whole && !group->is_open()) {
      members_.all_heard(group->names.back()->name, now);
      open(*group, now);
      complete(*group);
      continue;
    }
    for (int rank = 0; rank < options_.size; ++rank) {
      if (Status status = on_groups(rank, {message.plan, {number}}, now); !status.ok()) return status;
    }
  }
  return Status::ok_status();
}

// --- when something else happens to a name of a group

void Coordinator::touch(NamedRounds& name) {
  if (name.group == nullptr) return;
  disperse(*name.group);
  name.group->is_touched = true;
}

void Coordinator::disperse(PlannedGroup& group) {
  if (!group.is_open()) return;
  if (group.is_ready) ready_.remove(group);
  group.is_touched = true;
  for (NamedRounds* name : group.names) {
    Round& round = name->round;
    open_round(round, group.opened);
    round.n_failed_before = group.n_failed_before;
    for (int rank = 0; rank < options_.size; ++rank) {
      if (group.has_arrived(rank)) round.arrive(rank, Arrival::kUnchanged);
    }
  }
  const bool was_ready = group.is_ready;
  close(group);
  for (NamedRounds* name : group.names) {
    if (was_ready) complete_round(*name);
  }
}

void Coordinator::disperse_all() {
  for (const auto& group : groups_.groups()) disperse(*group);
}

// Stalls are reported by name.
void Coordinator::disperse_stalled(TimePoint now) {
  for (const auto& group : groups_.groups()) {
    if (!group->is_open() || group->is_ready) continue;
    const auto due = first_due(group->opened, group->opened + options_.stall_warning);
    if (due && now >= *due) disperse(*group);
  }
}

// --- plans

void Coordinator::publish_plan(std::vector<LogEntry>& entries) {
  const LearnedOrder& order = ready_.order();
  if (!options_.reports_groups || order.n_groups() == 0 || order.plan() == groups_.learned_plan()) return;
  const auto is_ready = [](const auto& group) { return group->is_ready; };
  if (!groups_.can_publish() || std::any_of(groups_.groups().begin(), groups_.groups().end(), is_ready)) return;
  disperse_all();
  entries.emplace_back(groups_.publish(order, cache_ids_.names()));
}

}  // namespace ciranda
