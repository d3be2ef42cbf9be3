// fetch_line(): has a cache line brought here while the thread does something else.
#pragma once

namespace ciranda {

// For writing: what holds `address` need not be fetched once more for the first write to it.
template <typename T>
void fetch_line(const T& address) {
#if defined(__x86_64__)
  // What __builtin_prefetch() makes for processors of every age would fetch it for reading only.
  asm volatile("prefetchw %0" : : "m"(address));  // NOLINT(hicpp-no-assembler)
#else
  __builtin_prefetch(&address, 1);
#endif
}

}  // namespace ciranda
