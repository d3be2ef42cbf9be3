#include "agree/process_sets.hpp"

#include <algorithm>
#include <functional>
#include <mutex>
#include <numeric>

namespace ciranda {

ProcessSets::ProcessSets(int world_size) {
  std::vector<int> all(static_cast<std::size_t>(world_size));
  std::iota(all.begin(), all.end(), 0);
  world_ = std::make_shared<const std::vector<int>>(std::move(all));
}

Ranks ProcessSets::ranks(std::uint32_t id) const {
  if (id == kWorldSet) return world_;
  if (is_pair(id)) {
    const auto [low, high] = ranks_of_pair(id);
    if (low >= high || high >= world_size()) return nullptr;
    return std::make_shared<const std::vector<int>>(std::vector<int>{low, high});
  }
  const std::shared_lock lock(mutex_);
  const auto found = sets_.find(id);
  return found == sets_.end() ? nullptr : found->second;
}

bool ProcessSets::was_made(std::uint32_t id) const {
  const std::shared_lock lock(mutex_);
  return id < next_id_ || leavers_.contains(id);
}

std::optional<std::uint32_t> ProcessSets::find(const std::vector<int>& ranks) const {
  if (ranks == *world_) return kWorldSet;
  const std::shared_lock lock(mutex_);
  for (const auto& [id, members] : sets_) {
    if (!is_formed(id) && *members == ranks) return id;
  }
  return std::nullopt;
}

std::uint32_t ProcessSets::add(std::vector<int> ranks) {
  const std::unique_lock lock(mutex_);
  sets_.emplace(next_id_, std::make_shared<const std::vector<int>>(std::move(ranks)));
  return next_id_++;
}

Result<std::uint32_t> ProcessSets::form(int rank, std::vector<int> ranks, std::uint32_t nth) {
  const bool is_ascending = std::is_sorted(ranks.begin(), ranks.end(), std::less_equal<>());
  const bool are_there = !ranks.empty() && is_ascending && ranks.front() >= 0 && ranks.back() < world_size();
  const bool is_in = std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  if (!are_there || !is_in || ranks.front() >= kMaxPairRank || nth >= kMaxFormed) {
    return Status::invalid_argument("form_set: " + to_string(ranks) + ", number " + std::to_string(nth) +
                                    ", must be ascending ranks of the world with rank " + std::to_string(rank) +
                                    " among them, and a number below " + std::to_string(kMaxFormed) + ".");
  }
  const std::uint32_t id = formed_set(ranks.front(), nth);
  const std::unique_lock lock(mutex_);
  if (leavers_.contains(id) || !sets_.emplace(id, std::make_shared<const std::vector<int>>(std::move(ranks))).second) {
    return Status::invalid_argument("form_set: the first rank has formed set number " + std::to_string(nth) +
                                    " already; it must choose another.");
  }
  return id;
}

bool ProcessSets::remove(std::uint32_t id) {
  const std::unique_lock lock(mutex_);
  return sets_.erase(id) > 0;
}

void ProcessSets::end(std::uint32_t id, int leaver) {
  const std::unique_lock lock(mutex_);
  sets_.erase(id);
  leavers_.emplace(id, leaver);
}

std::vector<std::uint32_t> ProcessSets::ended() const {
  const std::shared_lock lock(mutex_);
  std::vector<std::uint32_t> ids;
  ids.reserve(leavers_.size());
  for (const auto& [id, leaver] : leavers_) ids.push_back(id);
  return ids;
}

std::optional<Status> ProcessSets::end_of(std::uint32_t id) const {
  const std::shared_lock lock(mutex_);
  const auto found = leavers_.find(id);
  return found == leavers_.end() ? std::nullopt : std::optional(has_left(found->second));
}

Status has_left(int leaver) {
  return Status::aborted("rank " + std::to_string(leaver) +
                         " has left this process set (by destroy_process_group(), or its group was dropped), so "
                         "nothing can be done in it any more. Leave it after the last call of all of its ranks.");
}

std::string to_string(const std::vector<int>& ranks) {
  std::string text = "[";
  for (const int rank : ranks) text += (text.size() > 1 ? ", " : "") + std::to_string(rank);
  return text + "]";
}

}  // namespace ciranda
