#include "workers.hpp"

#include <cstdlib>
#include <utility>

namespace ciranda::fakes {

void Workers::start(std::function<void()> work, std::function<void()> wake) {
  const std::lock_guard lock(mutex_);
  if (are_over_) return;
  if (!std::exchange(has_begun_, true)) std::atexit([] { workers().end(); });
  join_ended();
  Worker& worker = all_.emplace_back();
  worker.wake = std::move(wake);
  worker.thread = std::thread([&worker, work = std::move(work)] {
    work();
    worker.has_ended = true;
  });
}

void Workers::join_ended() {
  all_.remove_if([](Worker& each) {
    if (!each.has_ended) return false;
    each.thread.join();
    return true;
  });
}

void Workers::end() {
  const std::lock_guard lock(mutex_);
  are_over_ = true;
  for (Worker& each : all_) {
    each.wake();
    each.thread.join();
  }
}

Workers& workers() {
  static auto* const kept = new Workers;
  return *kept;
}

}  // namespace ciranda::fakes
