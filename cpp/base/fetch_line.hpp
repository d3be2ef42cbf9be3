// fetch_line(): prefetches a cache line while the thread does something else.
// Called by RecordRing and Arrivals; any thread.
#pragma once

namespace ciranda {

// Prefetches the line of `address` for writing, so that the first write need not fetch it again.
template <typename T>
void fetch_line(const T& address) {
#if defined(__x86_64__)
  // For processors of every age, __builtin_prefetch() compiles to a prefetch for reading only.
  asm volatile("prefetchw %0" : : "m"(address));  // NOLINT(hicpp-no-assembler)
#else
  __builtin_prefetch(&address, 1);
#endif
}

}  // namespace ciranda
