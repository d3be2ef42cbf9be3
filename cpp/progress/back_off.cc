#include "progress/back_off.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "base/relax.hpp"

namespace ciranda {
namespace {

// Looks without yielding the core: about the time in which a peer that runs answers.
constexpr int kLooksBeforeYield = 50;
// A yield that takes longer let somebody else run on this core.
constexpr auto kLonelyYield = std::chrono::microseconds(4);

// After a late yield there is none for so many times as long: of the time of a rank beside other work a sixteenth, at
// most, goes to find that work gone. A thread that sleeps is scheduled before one that is busy, one that yields after
// it.
constexpr int kTimesWithoutYield = 16;

// A thread that only yields stays on its core, also when the one it shares it with is the very peer it waits for and
// another core is idle; one that sleeps for a moment often wakes up on it again. So it says that it may run anywhere
// else, and, having been moved, that it may run wherever it might before.
void step_aside() {
  cpu_set_t usable;
  const int cpu = sched_getcpu();
  if (cpu < 0 || sched_getaffinity(0, sizeof usable, &usable) != 0 || CPU_COUNT(&usable) < 2) return;
  cpu_set_t elsewhere = usable;
  CPU_CLR(static_cast<unsigned>(cpu), &elsewhere);
  if (sched_setaffinity(0, sizeof elsewhere, &elsewhere) == 0) sched_setaffinity(0, sizeof usable, &usable);
}

// Not those that this process may use: ranks that are pinned to a core each do not oversubscribe the host.
int n_cores() { return static_cast<int>(std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L)); }

// Ranks that this one shares cores with, whether or not it shares memory with them.
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

// Returns when it had the core again.
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
