#include "transport/sleep_gate.hpp"

#include <poll.h>

#include <algorithm>
#include <ctime>
#include <utility>

namespace ciranda {
namespace {

// The time after the last call at which a lingering sleeper enables socket events.
constexpr std::chrono::milliseconds kLinger{4};
// The sleeper lingers after kCallsInARow calls, each sooner than this after the one before.
constexpr std::chrono::milliseconds kSoon{1};
constexpr int kCallsInARow = 8;

timespec to_timespec(std::chrono::nanoseconds time) {
  return {static_cast<time_t>(time.count() / 1'000'000'000), static_cast<long>(time.count() % 1'000'000'000)};
}

}  // namespace

Result<std::unique_ptr<SleepGate>> SleepGate::create(int bell, int sockets) {
  auto gate = EventLoop::create();
  auto nudge = Bell::create();
  if (!gate.ok() || !nudge.ok()) return gate.ok() ? nudge.status() : gate.status();
  auto made = std::make_unique<SleepGate>(std::move(gate).value(), std::move(nudge).value(), sockets);
  for (const auto& [fd, events] : {std::pair{bell, EPOLLIN}, {made->nudge_.fd(), EPOLLIN}, {sockets, EPOLL_EVENTS{}}}) {
    if (Status added = made->gate_.add(fd, events, static_cast<std::uint64_t>(fd)); !added.ok()) return added;
  }
  return made;
}

void SleepGate::let_through(bool they_may) {
  if (std::exchange(lets_through_, they_may) == they_may) return;
  gate_.change(sockets_, they_may ? std::uint32_t{EPOLLIN} : 0U, static_cast<std::uint64_t>(sockets_));
}

void SleepGate::open(bool at_once) {
  const std::lock_guard lock(mutex_);
  is_shut_ = false;
  if (at_once || !lingers_) let_through(true);
}

void SleepGate::shut() {
  const std::lock_guard lock(mutex_);
  is_shut_ = true;
  ++n_shuts_;
  if (!lets_through_) return;
  let_through(false);
  const Clock::time_point now = Clock::now();
  n_quick_ = now - last_shut_ < kSoon ? n_quick_ + 1 : 0;
  last_shut_ = now;
  if (n_quick_ < kCallsInARow || lingers_ || is_nudged_) return;
  is_nudged_ = true;
  nudge_.ring();
}

bool SleepGate::lingers() const {
  const std::lock_guard lock(mutex_);
  return lingers_;
}

bool SleepGate::take_nudge() {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(is_nudged_, false)) return false;
  nudge_.drain();
  lingers_ = true;
  return true;
}

void SleepGate::stop_lingering_if_idle(std::uint64_t n_shuts) {
  const std::lock_guard lock(mutex_);
  if (is_shut_ || n_shuts_ != n_shuts) return;
  lingers_ = false;
  n_quick_ = 0;
  let_through(true);
}

bool SleepGate::sleep(std::optional<std::chrono::nanoseconds> at_most) {
  using std::chrono::nanoseconds;
  const Clock::time_point begin = Clock::now();
  while (true) {
    bool lingers = false;
    std::uint64_t n_shuts = 0;
    {
      const std::lock_guard lock(mutex_);
      lingers = lingers_;
      n_shuts = n_shuts_;
    }
    std::optional<nanoseconds> left;
    if (at_most) left = std::max(nanoseconds(0), *at_most - nanoseconds(Clock::now() - begin));
    if (lingers) left = std::min<nanoseconds>(left.value_or(kLinger), kLinger);
    pollfd gate{gate_.fd(), POLLIN, 0};
    const timespec timeout = to_timespec(left.value_or(nanoseconds(0)));
    const int n_ready = ppoll(&gate, 1, left ? &timeout : nullptr, nullptr);
    // Events that arrived together with the nudge are still pending at the next iteration.
    if (n_ready > 0 && !take_nudge()) return true;
    if (n_ready > 0) continue;
    if (!lingers || n_ready < 0 || (at_most && Clock::now() - begin >= *at_most)) return false;
    stop_lingering_if_idle(n_shuts);
  }
}

}  // namespace ciranda
