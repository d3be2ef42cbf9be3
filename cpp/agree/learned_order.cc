#include "agree/learned_order.hpp"

#include <algorithm>
#include <utility>

namespace ciranda {

void LearnedOrder::observe(std::uint32_t cache_id, std::size_t n_bytes, std::uint32_t kind) {
  if (!has_plan() && position_.contains(cache_id)) end_learning_step();
  if (has_plan() && note(cache_id)) return;
  learn({cache_id, n_bytes, kind});
}

// --- without a plan

void LearnedOrder::learn(const Seen& seen) {
  position_.emplace(seen.cache_id, current_.size());
  current_.push_back(seen);
}

void LearnedOrder::end_learning_step() {
  const bool is_stable = brought_the_same(previous_);
  previous_ = std::exchange(current_, {});
  position_.clear();
  if (is_stable) make_plan();
}

bool LearnedOrder::brought_the_same(const std::vector<Seen>& step) const {
  return step.size() == current_.size() &&
         std::all_of(step.begin(), step.end(), [this](const Seen& seen) { return position_.contains(seen.cache_id); });
}

// --- with a plan: it stays while the set of names stays, whatever their order

bool LearnedOrder::note(std::uint32_t cache_id) {
  const auto found = planned_.find(cache_id);
  if (found == planned_.end()) {  // not in the plan: this step differs
    drop_plan();
    return false;
  }
  Planned& planned = found->second;
  Group* group = planned.group ? &groups_[*planned.group] : nullptr;
  const bool was_seen = planned.step == step_ || (group != nullptr && group->step == step_);
  if (was_seen && !end_planned_step()) return false;
  planned.step = step_;
  if (group != nullptr) group->partial_step = step_;
  notes_.push_back({false, cache_id});
  ++n_seen_;
  return true;
}

void LearnedOrder::observe_group(std::uint32_t number) {
  const Group& group = groups_[number];
  if (group.step == step_ || group.partial_step == step_) {
    std::vector<Seen> seen;
    for (const std::uint32_t cache_id : group.cache_ids) seen.push_back(previous_[planned_.at(cache_id).position]);
    if (!end_planned_step()) {
      for (const Seen& one : seen) learn(one);
      return;
    }
  }
  groups_[number].step = step_;
  notes_.push_back({true, number});
  n_seen_ += groups_[number].cache_ids.size();
}

bool LearnedOrder::end_planned_step() {
  const bool is_whole = n_seen_ == planned_.size();
  if (is_whole) {
    notes_.clear();
  } else {
    drop_plan();
    previous_ = std::exchange(current_, {});
    position_.clear();
  }
  n_seen_ = 0;
  ++step_;
  return is_whole;
}

std::optional<std::uint32_t> LearnedOrder::group_of(std::uint32_t cache_id) const {
  const auto found = planned_.find(cache_id);
  if (found == planned_.end()) return std::nullopt;
  return found->second.group;
}

void LearnedOrder::make_plan() {
  constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
  const std::size_t enough = bytes_of_a_group();
  std::unordered_map<std::uint32_t, std::size_t> filling;  // by kind: the group that is not full
  for (std::size_t position = 0; position < previous_.size(); ++position) {
    const Seen& seen = previous_[position];
    Planned& planned = planned_[seen.cache_id];
    planned.position = position;
    if (seen.kind == kNoKind) continue;
    std::size_t& number = filling.try_emplace(seen.kind, kNone).first->second;
    const bool has_room = number != kNone && groups_[number].n_bytes < enough &&
                          seen.n_bytes <= options_.most_bytes - std::min(options_.most_bytes, groups_[number].n_bytes);
    if (!has_room) {
      number = groups_.size();
      groups_.emplace_back().kind = seen.kind;
    }
    groups_[number].cache_ids.push_back(seen.cache_id);
    groups_[number].n_bytes += seen.n_bytes;
    planned.group = static_cast<std::uint32_t>(number);
  }
  ++plan_;
}

// A group exceeds this size by at most one tensor.
std::size_t LearnedOrder::bytes_of_a_group() const {
  std::size_t n_bytes = 0;
  for (const Seen& seen : previous_) n_bytes += seen.kind == kNoKind ? 0 : seen.n_bytes;
  return std::max(options_.group_bytes, n_bytes / options_.most_groups);
}

// The notes of this step become observations, as if there had been no plan.
void LearnedOrder::drop_plan() {
  for (const Note& noted : std::exchange(notes_, {})) {
    if (!noted.is_group) learn(previous_[planned_.at(noted.number).position]);
    for (std::size_t i = 0; noted.is_group && i < groups_[noted.number].cache_ids.size(); ++i) {
      learn(previous_[planned_.at(groups_[noted.number].cache_ids[i]).position]);
    }
  }
  planned_.clear();
  groups_.clear();
  n_seen_ = 0;
  ++step_;
  ++plan_;
}

}  // namespace ciranda
