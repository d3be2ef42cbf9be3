#include "call/operation.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <utility>
#include <vector>

#include "call/callbacks.hpp"

namespace ciranda {
namespace {

std::uint32_t* word_of(const std::atomic<std::uint32_t>& atomic) {
  static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));
  return reinterpret_cast<std::uint32_t*>(const_cast<std::atomic<std::uint32_t>*>(&atomic));
}

// std::atomic::wait does not return on a signal, but Ctrl-C must end a wait.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected, const timespec* at_most) {
  syscall(SYS_futex, word_of(word), FUTEX_WAIT_PRIVATE, expected, at_most, nullptr, 0);
}

void futex_wake_all(const std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, word_of(word), FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

void call_back_directly(const Operation::Callback& callback, const Operation& done) {
  const DirectCallback direct;
  ciranda::call_back([&] { callback(done); });
}

}  // namespace

bool Operation::sleep_until_done(std::optional<std::chrono::nanoseconds> at_most) const {
  const std::uint32_t seen = state_.fetch_or(kHasSleepers, std::memory_order_acq_rel) | kHasSleepers;
  if ((seen & kDone) != 0) return true;
  if (at_most) {
    const auto n = at_most->count();
    const timespec duration{static_cast<time_t>(n / 1'000'000'000), static_cast<long>(n % 1'000'000'000)};
    futex_wait(state_, seen, &duration);
  } else {
    futex_wait(state_, seen, nullptr);
  }
  return is_done();
}

Status Operation::order(const Place& place) const {
  for (const DeviceEventPtr& event : events_) {
    if (Status status = event->order(place); !status.ok()) return status;
  }
  return Status::ok_status();
}

bool Operation::has_ended() const {
  return is_done() && std::ranges::all_of(events_, [](const DeviceEventPtr& event) { return event->has_passed(); });
}

void Operation::when_done(Callback callback) {
  {
    const std::lock_guard lock(callbacks_mutex_);
    if ((state_.fetch_or(kHasCallbacks, std::memory_order_acq_rel) & kDone) == 0) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  call_back_directly(callback, *this);
}

void Operation::complete(Status status) {
  status_ = std::move(status);
  const std::uint32_t before = state_.fetch_or(kDone, std::memory_order_acq_rel);
  if ((before & kHasSleepers) != 0) futex_wake_all(state_);
  if ((before & kHasCallbacks) != 0) call_back();
}

// Callbacks may own other objects, so they are destroyed as soon as they have run.
void Operation::call_back() {
  std::vector<Callback> callbacks;
  {
    const std::lock_guard lock(callbacks_mutex_);
    callbacks.swap(callbacks_);
  }
  for (const Callback& callback : callbacks) call_back_directly(callback, *this);
}

}  // namespace ciranda
