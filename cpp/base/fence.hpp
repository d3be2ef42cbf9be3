// full_fence(): orders a store before a later load of another word, as the sleep protocol of a mesh needs
// (writer: store data, fence, load doorbell; sleeper: store doorbell, fence, load data). Called by SocketMesh and
// Counters; any thread.
#pragma once

#include <atomic>

namespace ciranda {

inline void full_fence() {
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"  // the sanitizer does not model fences; this code does not need it to
#endif
  std::atomic_thread_fence(std::memory_order_seq_cst);
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
}

}  // namespace ciranda
