#include "bindings/python/completion_queue.hpp"

namespace ciranda::python {

void CompletionQueue::expect(std::uint64_t key, const Deadline& deadline) {
  const std::lock_guard lock(mutex_);
  const auto at = deadline ? by_deadline_.emplace(*deadline, key) : by_deadline_.end();
  expected_.emplace(key, at);
  n_expected_.fetch_add(1);
  if (deadline && at == by_deadline_.begin()) changed_.notify_all();  // threads sleep until the next later deadline
}

void CompletionQueue::done(std::uint64_t key) {
  const std::lock_guard lock(mutex_);
  const auto found = expected_.find(key);
  if (found == expected_.end()) return;  // its deadline has passed, so it is in ready_, or was returned
  if (found->second != by_deadline_.end()) by_deadline_.erase(found->second);
  expected_.erase(found);
  ready_.push_back(key);
  changed_.notify_one();
}

std::optional<std::uint64_t> CompletionQueue::next() {
  std::unique_lock lock(mutex_);
  while (ready_.empty() && !is_closed_) {
    if (by_deadline_.empty()) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, Clock::time_point(by_deadline_.begin()->first));
      take_what_is_late(Clock::now());
    }
  }
  if (ready_.empty()) return std::nullopt;
  const std::uint64_t key = ready_.front();
  ready_.pop_front();
  n_expected_.fetch_sub(1);
  return key;
}

void CompletionQueue::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  changed_.notify_all();
}

// REQUIRES: the caller holds mutex_.
void CompletionQueue::take_what_is_late(Clock::time_point now) {
  const auto end = by_deadline_.upper_bound(now);
  for (auto late = by_deadline_.begin(); late != end; ++late) {
    expected_.erase(late->second);
    ready_.push_back(late->second);
    changed_.notify_one();
  }
  by_deadline_.erase(by_deadline_.begin(), end);
}

}  // namespace ciranda::python
