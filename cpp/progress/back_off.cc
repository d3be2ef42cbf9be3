#include "progress/back_off.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "base/relax.hpp"

namespace ciranda {
namespace {

// Polls without yielding the core. They take about as long as a running peer takes to answer.
constexpr int kLooksBeforeYield = 50;
// If a yield takes longer, another thread has run on this core.
constexpr auto kLonelyYield = std::chrono::microseconds(4);

// After a long yield, the thread does not yield again for this many times the yield's duration. So a rank that shares
// its core spends at most a sixteenth of its time on testing whether the other work has ended. (The system gives the
// core to a thread that wakes from sleep before a busy one, but to a thread that has yielded after it.)
constexpr int kTimesWithoutYield = 16;

// Moves this thread to another core. A thread that only yields stays on its core, even if it shares the core with the
// peer that it waits for while another core is idle. A thread that sleeps briefly often wakes on the same core. So this
// excludes the core from the thread's affinity, which moves it, and then restores the affinity.
void step_aside() {
  cpu_set_t usable;
  const int cpu = sched_getcpu();
  if (cpu < 0 || sched_getaffinity(0, sizeof usable, &usable) != 0 || CPU_COUNT(&usable) < 2) return;
  cpu_set_t elsewhere = usable;
  CPU_CLR(static_cast<unsigned>(cpu), &elsewhere);
  if (sched_setaffinity(0, sizeof elsewhere, &elsewhere) == 0) sched_setaffinity(0, sizeof usable, &usable);
}

// All cores of the host, also those that this process may not use: ranks that are pinned to one core each do not
// oversubscribe the host.
int n_cores() { return static_cast<int>(std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L)); }

// The number of ranks on this rank's host, whether or not they share memory.
int n_ranks_here(const Mesh& mesh) {
  const std::string& here = mesh.peer(mesh.rank()).host;
  int n = 1;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const PeerInfo& peer = mesh.peer(rank);
    if (rank != mesh.rank() && (peer.shares_memory || peer.host == here)) ++n;
  }
  return n;
}

}  // namespace

bool is_oversubscribed(const Mesh& mesh) { return n_ranks_here(mesh) > n_cores(); }

bool BackOff::look_again() {
  if (++n_looks_ < kLooksBeforeYield && !is_oversubscribed_) {
    relax();
    return true;
  }
  const Clock::time_point now = Clock::now();
  if (!idle_since_) idle_since_ = now;
  if (now < sharing_.no_yield_before.load(std::memory_order_relaxed)) return false;
  return yield(now) - *idle_since_ < limit_;
}

// Returns the time at which this thread had the core again.
BackOff::Clock::time_point BackOff::yield(Clock::time_point begin) {
  sched_yield();
  const Clock::time_point end = Clock::now();
  if (!is_oversubscribed_) learn_from(begin, end);
  return end;
}

void BackOff::learn_from(Clock::time_point begin, Clock::time_point end) {
  const Clock::duration taken = end - begin;
  if (taken < kLonelyYield) {
    sharing_.n_yields.store(0, std::memory_order_relaxed);
    return;
  }
  if (taken > limit_) {
    sharing_.no_yield_before.store(end + kTimesWithoutYield * taken, std::memory_order_relaxed);
    return;
  }
  if (sharing_.n_yields.fetch_add(1, std::memory_order_relaxed) + 1 < sharing_.n_yields_before_step_aside) return;
  sharing_.n_yields.store(0, std::memory_order_relaxed);
  step_aside();
}

}  // namespace ciranda
