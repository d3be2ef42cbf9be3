// relax(): what a thread does between two looks at a word that another writes, so that it takes less from that one.
#pragma once

#include <atomic>

namespace ciranda {

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace ciranda
