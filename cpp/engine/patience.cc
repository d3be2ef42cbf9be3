#include "engine/patience.hpp"

#include <sched.h>

#include <atomic>
#include <ctime>

namespace ciranda {
namespace {

// Looks without yielding the core: about the time in which a peer that runs answers.
constexpr int kLooksBeforeYield = 50;
// A yield that takes longer let somebody else run on this core.
constexpr auto kLonelyYield = std::chrono::microseconds(4);
constexpr int kSharedYieldsBeforeStepAside = 8;

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

// A thread that only yields stays on its core, also when the one it shares it with is the very peer it waits for and
// another core is idle. One that wakes up is placed on an idle core.
void step_aside() {
  const timespec moment{0, 1000};
  nanosleep(&moment, nullptr);
}

}  // namespace

bool Patience::look_again() {
  if (++n_looks_ < kLooksBeforeYield && !is_crowded_) {
    relax();
    return true;
  }
  yield();
  return Clock::now() - last_move_ < limit_;
}

void Patience::yield() {
  const Clock::time_point begin = Clock::now();
  sched_yield();
  if (is_crowded_ || Clock::now() - begin < kLonelyYield) return;
  if (++n_shared_yields_ < kSharedYieldsBeforeStepAside) return;
  n_shared_yields_ = 0;
  step_aside();
}

}  // namespace ciranda
