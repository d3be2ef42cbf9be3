// Coordinator: the part that gives names their cache ids.
//
// There are only so many. When all are given out, those that were used longest ago are taken back, some at a time: the
// log tells the ranks to forget them, each answers that it has, and only then another name gets the cache id. Until
// then the number means what it did. A rank keeps what it has a call of; its answer says so, and nothing that it
// reported by that number is under way any longer when the answer is here.
#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "negotiate/coordinator.hpp"

namespace ciranda {
namespace {

constexpr std::size_t kTimesToForgetAll = 16;

}  // namespace

void Coordinator::assign_cache_id(NamedRounds& name) {
  if (name.cache_id != kNoCacheId || !name.is_cacheable || options_.cache_capacity == 0) return;
  if (by_cache_id_.size() < options_.cache_capacity) {
    name.cache_id = static_cast<std::uint32_t>(by_cache_id_.size());
    by_cache_id_.push_back(&name);
    last_used_.push_back(0);
  } else if (const auto cache_id = reuse_cache_id()) {
    name.cache_id = *cache_id;
    by_cache_id_[*cache_id] = &name;
  } else {
    lacks_ids_ = true;
  }
}

// Its rounds are over, and no plan of groups that ranks may report by has it.
bool Coordinator::may_be_forgotten(const NamedRounds& name) const {
  return !name.round.is_open && name.owed.empty() && name.later.empty() && name.group == nullptr &&
         !groups_.is_previous_in_use();
}

// None if nothing is free. What was used again since is not.
std::optional<std::uint32_t> Coordinator::reuse_cache_id() {
  while (!free_ids_.empty() && !groups_.is_previous_in_use()) {
    const std::uint32_t cache_id = free_ids_.back();
    free_ids_.pop_back();
    NamedRounds& before = *by_cache_id_[cache_id];
    if (!std::exchange(before.is_being_forgotten, false) || !may_be_forgotten(before)) continue;
    before.cache_id = kNoCacheId;
    forget_if_unused(before);
    return cache_id;
  }
  return std::nullopt;
}

// What may not be forgotten has another chance: it counts as used now.
void Coordinator::forget_some(std::vector<LogEntry>& entries) {
  if (!std::exchange(lacks_ids_, false) || !to_forget_.empty() || !free_ids_.empty()) return;
  std::vector<std::uint32_t> oldest(by_cache_id_.size());
  std::iota(oldest.begin(), oldest.end(), 0U);
  const std::size_t n_wanted = (oldest.size() + kTimesToForgetAll - 1) / kTimesToForgetAll;
  const auto end = oldest.begin() + static_cast<std::ptrdiff_t>(n_wanted);
  std::nth_element(oldest.begin(), end - 1, oldest.end(),
                   [this](std::uint32_t a, std::uint32_t b) { return last_used_[a] < last_used_[b]; });
  for (auto cache_id = oldest.begin(); cache_id != end; ++cache_id) {
    NamedRounds& name = *by_cache_id_[*cache_id];
    if (may_be_forgotten(name)) {
      name.is_being_forgotten = true;
      to_forget_.push_back(*cache_id);
    } else {
      note_use(*cache_id);
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
  for (const std::uint32_t cache_id : message.kept) {
    if (Status status = check_cache_id(rank, cache_id); !status.ok()) return status;
    by_cache_id_[cache_id]->is_being_forgotten = false;
  }
  if (std::find(has_forgotten_.begin(), has_forgotten_.end(), false) == has_forgotten_.end()) {
    free_ids_ = std::exchange(to_forget_, {});
  }
  return Status::ok_status();
}

}  // namespace ciranda
