#include "execute/unended.hpp"

#include <optional>

namespace ciranda {

void Unended::add(std::string what, std::shared_ptr<DeviceWork> work) {
  const std::lock_guard lock(mutex_);
  calls_.push_back({std::move(what), std::move(work)});
}

void Unended::forget_ended() {
  const std::lock_guard lock(mutex_);
  while (!calls_.empty() && calls_.front().work->has_passed()) calls_.pop_front();
  if (calls_.empty()) changed_.notify_all();
}

Status Unended::fail(const Status& why) {
  const std::lock_guard lock(mutex_);
  std::optional<std::string> first;
  for (const Call& call : calls_) {
    const std::string text = " The result of " + call.what + " is void: its work on the GPU had not ended.";
    if (call.work->make_void({why.kind(), why.message() + text}) && !first) first = text;
  }
  calls_.clear();
  failed_ = {why.kind(), why.message() + first.value_or("")};
  changed_.notify_all();
  return failed_;
}

Result<bool> Unended::await(std::chrono::milliseconds at_most) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, at_most, [this] { return calls_.empty(); });
  if (!failed_.ok()) return failed_;
  return calls_.empty();
}

}  // namespace ciranda
