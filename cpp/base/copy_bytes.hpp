// Copies of data that other cores have written or will read, of some KiB to some MiB.
//
// copy_bytes() is std::memcpy, but by vectors from some KiB on, where glibc's is "rep movsb": that took a tenth longer
// to read lines that another core has written (docs/performance.md). copy_for_others() is for writing lines that
// another core has read: a store has to take each back, "rep movsb" need not fetch what it writes over.
//
// Pure; any thread. What is copied is visible to whoever sees a later release store of this thread.
#pragma once

#include <cstddef>
#include <cstring>

namespace ciranda {

inline constexpr std::size_t kCopyByVectorsFrom = 4096;

// REQUIRES: n_bytes >= kCopyByVectorsFrom; the ranges do not overlap.
void copy_by_vectors(std::byte* to, const std::byte* from, std::size_t n_bytes);

// REQUIRES, here and below: the ranges do not overlap.
inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t n_bytes) {
  if (n_bytes >= kCopyByVectorsFrom) return copy_by_vectors(to, from, n_bytes);
  if (n_bytes > 0) std::memcpy(to, from, n_bytes);
}

void copy_for_others(std::byte* to, const std::byte* from, std::size_t n_bytes);

}  // namespace ciranda
