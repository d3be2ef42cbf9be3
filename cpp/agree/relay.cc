#include "agree/relay.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace ciranda {
namespace {

// None if the message is no report.
std::optional<ReadyReport> report_in(Message message) {
  return std::visit(
      [](auto&& report) -> std::optional<ReadyReport> {
        using Report = std::decay_t<decltype(report)>;
        if constexpr (std::is_constructible_v<ReadyReport, std::in_place_type_t<Report>, Report>) {
          return ReadyReport(std::in_place_type<Report>, std::forward<decltype(report)>(report));
        } else {
          return std::nullopt;
        }
      },
      std::move(message));
}

}  // namespace

Relay::Relay(const RelayTree& tree, int rank) {
  for (const std::int32_t member : tree.ranks(rank)) children_.push_back({member, false, {member}});
  for (const int below : tree.relays_below(rank)) children_.push_back({below, true, tree.subtree(below)});
}

// --- messages from below

Status Relay::on_message(int from, Message message) {
  const bool is_relayed = std::holds_alternative<RelayedMessage>(message);
  const auto found = std::find_if(children_.begin(), children_.end(),
                                  [&](const Child& c) { return c.rank == from && c.is_relay == is_relayed; });
  if (found == children_.end()) {
    return Status::internal("rank " + std::to_string(from) + " reported to the relay of another rank");
  }
  const auto child = static_cast<std::size_t>(found - children_.begin());
  if (is_relayed) return on_relayed(child, std::get<RelayedMessage>(std::move(message)));
  if (std::holds_alternative<WaitingMessage>(message)) {
    set_waiting(*found, true);
    return Status::ok_status();
  }
  const auto* groups = std::get_if<GroupsMessage>(&message);
  const bool is_no_work =
      (groups != nullptr && groups->groups.empty()) || std::holds_alternative<ForgottenMessage>(message) ||
      std::holds_alternative<StandingMessage>(message) || std::holds_alternative<TurnMessage>(message);
  if (!is_no_work) set_waiting(*found, false);  // otherwise the child still waits
  std::optional<ReadyReport> report = report_in(std::move(message));
  if (!report) return Status::internal("rank " + std::to_string(from) + " sent its relay an invalid message");
  on_report(child, {}, std::move(*report));
  return Status::ok_status();
}

Status Relay::on_relayed(std::size_t child, RelayedMessage message) {
  set_waiting(children_[child], message.is_waiting);
  for (RelayedMessage::Item& item : message.items) on_report(child, std::move(item.ranks), std::move(item.report));
  return Status::ok_status();
}

void Relay::set_waiting(Child& child, bool is_waiting) {
  if (child.is_waiting == is_waiting) return;
  child.is_waiting = is_waiting;
  n_waiting_ += is_waiting ? 1 : std::size_t{0} - 1;
}

// `ranks`: empty for all ranks of the child.
void Relay::on_report(std::size_t child, std::vector<std::int32_t> ranks, ReadyReport report) {
  if (const auto* groups = std::get_if<GroupsMessage>(&report)) {
    on_groups(child, std::move(ranks), *groups);
    return;
  }
  if (const auto* ready = std::get_if<ReadyMessage>(&report)) {
    for (const ReadyMessage::Item& item : ready->items) split_group_of(item.cache_id);
  } else if (!std::holds_alternative<RequestMessage>(report) && !std::holds_alternative<TurnMessage>(report)) {
    let_go();
    if (std::holds_alternative<JoinMessage>(report)) {
      ++n_joined_;
      gathers_ = false;
    }
  }
  pass_on(ranks.empty() ? children_[child].ranks : std::move(ranks), std::move(report));
}

void Relay::on_groups(std::size_t child, std::vector<std::int32_t> ranks, const GroupsMessage& message) {
  const bool is_known = message.plan == plan_ && !message.groups.empty() &&
                        std::all_of(message.groups.begin(), message.groups.end(),
                                    [this](std::uint32_t number) { return number < groups_.size(); });
  const bool is_of_all = ranks.empty();
  if (is_of_all) ranks = children_[child].ranks;
  if (!is_known) {  // the message belongs to the previous plan, or acknowledges a plan
    pass_on(std::move(ranks), message);
    return;
  }
  for (const std::uint32_t number : message.groups) {
    if (!is_of_all || !gathers_) split(number);
    if (groups_[number].is_split) {
      pass_on(ranks, GroupsMessage{plan_, {number}});
    } else {
      on_group(child, number);
    }
  }
}

void Relay::on_group(std::size_t child, std::uint32_t number) {
  Group& group = groups_[number];
  if (group.has_arrived[child]) let_go(group, number);  // left from the previous use
  group.has_arrived[child] = true;
  if (++group.n_arrived == 1) ++n_held_;
  if (group.n_arrived < children_.size()) return;
  group.has_arrived.assign(children_.size(), false);
  group.n_arrived = 0;
  --n_held_;
  pass_on_for_all(number);
}

// --- messages to the relay above

void Relay::pass_on(std::vector<std::int32_t> ranks, ReadyReport report) {
  news_.items.push_back({std::move(ranks), std::move(report)});
}

void Relay::pass_on_for_all(std::uint32_t group) {
  if (!news_.items.empty() && news_.items.back().ranks.empty()) {
    if (auto* last = std::get_if<GroupsMessage>(&news_.items.back().report); last->plan == plan_) {
      last->groups.push_back(group);
      return;
    }
  }
  news_.items.push_back({{}, GroupsMessage{plan_, {group}}});
}

RelayedMessage Relay::take() {
  has_reported_waiting_ = news_.is_waiting = is_waiting();
  return std::exchange(news_, {});
}

void Relay::split(std::uint32_t number) {
  let_go(groups_[number], number);
  groups_[number].is_split = true;
}

void Relay::split_group_of(std::uint32_t cache_id) {
  if (const auto found = group_of_id_.find(cache_id); found != group_of_id_.end()) split(found->second);
}

void Relay::let_go(Group& group, std::uint32_t number) {
  if (group.n_arrived == 0) return;
  std::vector<std::int32_t> ranks;
  for (std::size_t child = 0; child < children_.size(); ++child) {
    if (!group.has_arrived[child]) continue;
    ranks.insert(ranks.end(), children_[child].ranks.begin(), children_[child].ranks.end());
  }
  group.has_arrived.assign(children_.size(), false);
  group.n_arrived = 0;
  --n_held_;
  group.is_split = true;
  pass_on(std::move(ranks), GroupsMessage{plan_, {number}});
}

void Relay::let_go() {
  for (std::size_t number = 0; n_held_ > 0 && number < groups_.size(); ++number) {
    let_go(groups_[number], static_cast<std::uint32_t>(number));
  }
}

// --- the log

void Relay::pass_down(const LogMessage& log) {
  for (const LogEntry& entry : log.entries) {
    if (const auto* planned = std::get_if<PlanEntry>(&entry)) {
      plan(*planned);
    } else if (const auto* groups = std::get_if<ExecuteGroupsEntry>(&entry)) {
      gathers_ = n_joined_ == 0;
      for (const std::uint32_t number : groups->groups) {
        if (groups->plan == plan_ && number < groups_.size()) groups_[number].is_split = false;
      }
    } else if (const auto* execute = std::get_if<ExecuteEntry>(&entry)) {
      for (const ExecuteItem& item : execute->items) mend(item.cache_id);
    } else if (std::holds_alternative<JoinedEntry>(entry)) {
      n_joined_ = 0;
    }
  }
}

void Relay::plan(const PlanEntry& entry) {
  let_go();
  plan_ = entry.plan;
  // Until a group has been executed once, some ranks may report its names one by one.
  groups_.assign(entry.groups.size(), Group{std::vector<bool>(children_.size()), 0, true});
  group_of_id_.clear();
  for (std::size_t number = 0; number < entry.groups.size(); ++number) {
    for (const std::uint32_t cache_id : entry.groups[number])
      group_of_id_[cache_id] = static_cast<std::uint32_t>(number);
  }
}

// The log executes a name only after all ranks have reported it, so no report of its group's current use is missing.
void Relay::mend(std::uint32_t cache_id) {
  if (const auto found = group_of_id_.find(cache_id); found != group_of_id_.end())
    groups_[found->second].is_split = false;
}

}  // namespace ciranda
