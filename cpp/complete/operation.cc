#include "complete/operation.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <ctime>

namespace ciranda {
namespace {

std::uint32_t* word_of(const std::atomic<std::uint32_t>& atomic) {
  static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));
  return reinterpret_cast<std::uint32_t*>(const_cast<std::atomic<std::uint32_t>*>(&atomic));
}

// std::atomic::wait would not return when a signal comes, and Ctrl-C must end a wait.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected, const timespec* at_most) {
  syscall(SYS_futex, word_of(word), FUTEX_WAIT_PRIVATE, expected, at_most, nullptr, 0);
}

void futex_wake_all(const std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, word_of(word), FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

}  // namespace

bool Operation::sleep_until_done(std::optional<std::chrono::nanoseconds> at_most) const {
  std::uint32_t seen = state_.load(std::memory_order_acquire);
  if (seen == kPending) {
    state_.compare_exchange_strong(seen, kPendingWithSleeper, std::memory_order_acq_rel);
    seen = state_.load(std::memory_order_acquire);
  }
  if (seen == kDone) return true;
  if (at_most) {
    const auto n = at_most->count();
    const timespec duration{static_cast<time_t>(n / 1'000'000'000), static_cast<long>(n % 1'000'000'000)};
    futex_wait(state_, kPendingWithSleeper, &duration);
  } else {
    futex_wait(state_, kPendingWithSleeper, nullptr);
  }
  return is_done();
}

void Operation::complete(Status status) {
  status_ = std::move(status);
  note(Moment::kDone);
  if (state_.exchange(kDone, std::memory_order_acq_rel) == kPendingWithSleeper) futex_wake_all(state_);
  if (callback_) {
    const Callback callback = std::move(callback_);
    callback(*this);
  }
}

}  // namespace ciranda
