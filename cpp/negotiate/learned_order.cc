#include "negotiate/learned_order.hpp"

namespace ciranda {

void LearnedOrder::observe(std::uint32_t slot, std::size_t n_bytes) {
  if (position_.contains(slot)) begin_step();
  position_.emplace(slot, current_.size());
  current_.push_back({slot, n_bytes});
  if (!groups_.empty() && !groups_.contains(slot)) drop_plan();  // a stranger: the plan is not this step's
}

std::optional<std::uint32_t> LearnedOrder::group_of(std::uint32_t slot) const {
  const auto found = groups_.find(slot);
  if (found == groups_.end()) return std::nullopt;
  return found->second;
}

void LearnedOrder::begin_step() {
  const bool is_stable = brought_the_same(previous_);
  previous_ = std::move(current_);
  current_.clear();
  if (!is_stable) {
    drop_plan();
  } else if (groups_.empty()) {
    make_plan();  // kept while the set stays: the cut need not follow every change of order
  }
  position_.clear();
}

bool LearnedOrder::brought_the_same(const std::vector<Seen>& step) const {
  if (step.size() != current_.size()) return false;
  for (const Seen& seen : step) {
    if (!position_.contains(seen.slot)) return false;
  }
  return true;
}

void LearnedOrder::make_plan() {
  drop_plan();
  std::size_t filled = group_bytes_;  // full: the first slot opens a group
  for (const Seen& seen : previous_) {
    if (filled >= group_bytes_) {
      group_sizes_.push_back(0);
      filled = 0;
    }
    groups_[seen.slot] = static_cast<std::uint32_t>(group_sizes_.size() - 1);
    ++group_sizes_.back();
    filled += seen.n_bytes;
  }
}

void LearnedOrder::drop_plan() {
  groups_.clear();
  group_sizes_.clear();
  ++plan_;
}

}  // namespace ciranda
