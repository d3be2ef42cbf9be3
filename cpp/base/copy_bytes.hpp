// Copies of data that other cores have written or will read, of some KiB to some MiB.
//
// copy_bytes() is std::memcpy, but by vectors from some KiB on, where glibc's is "rep movsb": that took a tenth longer
// to read lines that another core has written (docs/performance.md). copy_for_others() is for writing staging buffers,
// which others will read. Through the caches it writes by "rep movsb", which need not fetch what it writes over, where
// the processor has fast strings, else by vectors. Where the others have read the lines last, a store has to take each
// back; past the caches it need not, but reading then takes longer. Which is faster differs by processor and by how far
// apart the cores are: so staging_copy() is what is in use by the whole process for such lines.
//
// Any thread. What is copied is visible to whoever sees a later release store of this thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace ciranda {

inline constexpr std::size_t kCopyByVectorsFrom = 4096;

// REQUIRES: n_bytes >= kCopyByVectorsFrom; the ranges do not overlap.
void copy_by_vectors(std::byte* to, const std::byte* from, std::size_t n_bytes);

// REQUIRES, here and below: the ranges do not overlap.
inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t n_bytes) {
  if (n_bytes >= kCopyByVectorsFrom) return copy_by_vectors(to, from, n_bytes);
  if (n_bytes > 0) std::memcpy(to, from, n_bytes);
}

enum class StagingCopy : std::uint8_t { kCached, kPastCaches };
inline constexpr std::array<std::string_view, 2> kStagingCopies{"cached", "past-caches"};  // by number

constexpr std::string_view to_string(StagingCopy technique) {
  return kStagingCopies[static_cast<std::size_t>(technique)];
}
constexpr std::optional<StagingCopy> staging_copy_named(std::string_view name) {
  for (std::size_t i = 0; i < kStagingCopies.size(); ++i) {
    if (kStagingCopies[i] == name) return static_cast<StagingCopy>(i);
  }
  return std::nullopt;
}

// The one in use: through the caches, until another is set. The bytes are the same with each.
StagingCopy staging_copy();
void set_staging_copy(StagingCopy technique);

// kCached is for lines that this core has read or written last, too: kPastCaches would take them out of its caches.
void copy_for_others(std::byte* to, const std::byte* from, std::size_t n_bytes, StagingCopy technique);

}  // namespace ciranda
