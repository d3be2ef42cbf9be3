// relax(): a pause between two loads of a word that another thread writes, to disturb that thread less.
// Called by ProgressLoop, RoundsInMemory, BackOff and DeviceThread; any thread.
#pragma once

#include <atomic>

namespace ciranda {

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // NOLINT(hicpp-no-assembler): "yield" does nothing on most of these processors
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace ciranda
