#include "agree/cache_ids.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace ciranda {
namespace {

constexpr std::size_t kTimesToForgetAll = 16;

// No member may still report the name: its negotiations are over, no error is deferred, and no current plan has it.
bool is_unused(const NameState& name) {
  return !name.negotiation.is_open() && name.deferred_errors.empty() && name.later.empty() && name.group == nullptr;
}

}  // namespace

NameState* CacheIds::assign(NameState& name, bool takes_back) {
  if (name.cache_id != kNoCacheId || !name.is_cacheable || capacity_ == 0) return nullptr;
  if (names_.size() < capacity_) {
    name.cache_id = static_cast<std::uint32_t>(names_.size());
    names_.push_back(&name);
    last_used_.push_back(0);
    return nullptr;
  }
  NameState* before = takes_back ? take_back(name) : nullptr;
  if (before == nullptr) lacks_some_ = true;
  return before;
}

// A name that was executed again since the members were told to forget it keeps its cache id.
NameState* CacheIds::take_back(NameState& name) {
  while (!free_.empty()) {
    const std::uint32_t cache_id = free_.back();
    free_.pop_back();
    NameState& before = *names_[cache_id];
    if (!std::exchange(before.is_being_forgotten, false) || !is_unused(before)) continue;
    before.cache_id = kNoCacheId;
    name.cache_id = cache_id;
    names_[cache_id] = &name;
    return &before;
  }
  return nullptr;
}

// A cache id that may not be forgotten counts as used now, so that it is not tried again soon.
std::optional<ForgetEntry> CacheIds::forget_some(bool takes_back) {
  if (!std::exchange(lacks_some_, false) || !to_forget_.empty() || !free_.empty()) return std::nullopt;
  std::vector<std::uint32_t> oldest(names_.size());
  std::iota(oldest.begin(), oldest.end(), 0U);
  const std::size_t n_wanted = (oldest.size() + kTimesToForgetAll - 1) / kTimesToForgetAll;
  const auto end = oldest.begin() + static_cast<std::ptrdiff_t>(n_wanted);
  std::nth_element(oldest.begin(), end - 1, oldest.end(),
                   [this](std::uint32_t a, std::uint32_t b) { return last_used_[a] < last_used_[b]; });
  for (auto cache_id = oldest.begin(); cache_id != end; ++cache_id) {
    NameState& name = *names_[*cache_id];
    if (takes_back && is_unused(name)) {
      name.is_being_forgotten = true;
      to_forget_.push_back(*cache_id);
    } else {
      note_use(*cache_id);
    }
  }
  if (to_forget_.empty()) return std::nullopt;
  has_forgotten_.assign(static_cast<std::size_t>(n_members_), false);
  return ForgetEntry{to_forget_};
}

void CacheIds::forgotten(int member, const std::vector<std::uint32_t>& kept) {
  has_forgotten_[static_cast<std::size_t>(member)] = true;
  for (const std::uint32_t cache_id : kept) names_[cache_id]->is_being_forgotten = false;
  if (std::find(has_forgotten_.begin(), has_forgotten_.end(), false) == has_forgotten_.end()) {
    free_ = std::exchange(to_forget_, {});
  }
}

}  // namespace ciranda
