#include "agree/held_groups.hpp"

#include <utility>

namespace ciranda {
namespace {

constexpr std::uint32_t kNoGroup = 0xffffffff;

}  // namespace

using State = PersistentOp::State;

std::optional<Message> HeldGroups::hold(PersistentOp& op) {
  const std::uint32_t number = op.cache_id() < group_of_id_.size() ? group_of_id_[op.cache_id()] : kNoGroup;
  if (number == kNoGroup) return std::nullopt;
  Group& group = groups_[number];
  op.become(State::kHeld);
  ++n_held_;
  if (++group.n_held < group.cache_ids.size()) return ReadyMessage{};
  n_held_ -= std::exchange(group.n_held, 0);
  for (const std::uint32_t cache_id : group.cache_ids) names_.at(cache_id).become(State::kReported);
  return GroupsMessage{plan_, {number}};
}

ReadyMessage HeldGroups::release() {
  ReadyMessage released;
  for (std::size_t number = 0; n_held_ > 0 && number < groups_.size(); ++number) {
    Group& group = groups_[number];
    if (group.n_held == 0) continue;
    n_held_ -= std::exchange(group.n_held, 0);
    for (const std::uint32_t cache_id : group.cache_ids) {
      if (names_.at(cache_id).state() != State::kHeld) continue;
      names_.at(cache_id).become(State::kReported);
      released.items.push_back({cache_id, true});
    }
  }
  return released;
}

std::optional<std::uint32_t> HeldGroups::plan(const PlanEntry& entry) {
  plan_ = entry.plan;
  groups_.clear();
  group_of_id_.clear();
  for (const std::vector<std::uint32_t>& cache_ids : entry.groups) {
    for (const std::uint32_t cache_id : cache_ids) {
      if (names_.find(cache_id) == nullptr) return cache_id;
      if (cache_id >= group_of_id_.size()) group_of_id_.resize(std::size_t{cache_id} + 1, kNoGroup);
      const auto number = static_cast<std::uint32_t>(groups_.size());
      if (std::exchange(group_of_id_[cache_id], number) != kNoGroup) return cache_id;
    }
    groups_.push_back({cache_ids, 0});
  }
  return std::nullopt;
}

}  // namespace ciranda
