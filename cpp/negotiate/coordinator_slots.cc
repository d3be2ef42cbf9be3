// Coordinator: the part that gives names their slots.
//
// There are only so many. When all are given out, those that were used longest ago are taken back, some at a time: the
// log tells the ranks to forget them, each answers that it has, and only then another name gets the slot. Until then
// the number means what it did. A rank keeps what it has a call of; its answer says so, and nothing that it reported
// by that number is under way any longer when the answer is here.
#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "negotiate/coordinator.hpp"

namespace ciranda {
namespace {

constexpr std::size_t kTimesToForgetAll = 16;

}  // namespace

void Coordinator::assign_slot(NamedRounds& name) {
  if (name.slot != kNoSlot || !name.is_cacheable || options_.cache_capacity == 0) return;
  if (slots_.size() < options_.cache_capacity) {
    name.slot = static_cast<std::uint32_t>(slots_.size());
    slots_.push_back(&name);
    last_used_.push_back(0);
  } else if (const auto slot = reuse_slot()) {
    name.slot = *slot;
    slots_[*slot] = &name;
  } else {
    lacks_slots_ = true;
  }
}

// Its rounds are over, and no plan of groups that ranks may report by has it.
bool Coordinator::may_be_forgotten(const NamedRounds& name) const {
  return !name.round.is_open && name.owed.empty() && name.later.empty() && name.group == nullptr &&
         !groups_.is_previous_in_use();
}

// None if nothing is free. What was used again since is not.
std::optional<std::uint32_t> Coordinator::reuse_slot() {
  while (!free_slots_.empty() && !groups_.is_previous_in_use()) {
    const std::uint32_t slot = free_slots_.back();
    free_slots_.pop_back();
    NamedRounds& before = *slots_[slot];
    if (!std::exchange(before.is_being_forgotten, false) || !may_be_forgotten(before)) continue;
    before.slot = kNoSlot;
    forget_if_unused(before);
    return slot;
  }
  return std::nullopt;
}

// What may not be forgotten has another chance: it counts as used now.
void Coordinator::forget_some(std::vector<LogEntry>& entries) {
  if (!std::exchange(lacks_slots_, false) || !to_forget_.empty() || !free_slots_.empty()) return;
  std::vector<std::uint32_t> oldest(slots_.size());
  std::iota(oldest.begin(), oldest.end(), 0U);
  const std::size_t n_wanted = (oldest.size() + kTimesToForgetAll - 1) / kTimesToForgetAll;
  const auto end = oldest.begin() + static_cast<std::ptrdiff_t>(n_wanted);
  std::nth_element(oldest.begin(), end - 1, oldest.end(),
                   [this](std::uint32_t a, std::uint32_t b) { return last_used_[a] < last_used_[b]; });
  for (auto slot = oldest.begin(); slot != end; ++slot) {
    NamedRounds& name = *slots_[*slot];
    if (may_be_forgotten(name)) {
      name.is_being_forgotten = true;
      to_forget_.push_back(*slot);
    } else {
      note_use(*slot);
    }
  }
  if (to_forget_.empty()) return;
  has_forgotten_.assign(static_cast<std::size_t>(options_.size), false);
  entries.emplace_back(ForgetEntry{to_forget_});
}

Status Coordinator::on_forgotten(int rank, const ForgottenMessage& message) {
  if (to_forget_.empty() || has_forgotten_[static_cast<std::size_t>(rank)]) {
    return Status::internal(members_.rank_text(rank) + " has forgotten what nobody told it to");
  }
  has_forgotten_[static_cast<std::size_t>(rank)] = true;
  for (const std::uint32_t slot : message.kept) {
    if (Status status = check_slot(rank, slot); !status.ok()) return status;
    slots_[slot]->is_being_forgotten = false;
  }
  if (std::find(has_forgotten_.begin(), has_forgotten_.end(), false) == has_forgotten_.end()) {
    free_slots_ = std::exchange(to_forget_, {});
  }
  return Status::ok_status();
}

}  // namespace ciranda
