// Copies of data that other cores have written or will read, of some KiB to some MiB.
//
// copy_bytes() is std::memcpy. copy_for_others() is for writing staging buffers, which other ranks will read. Through
// the caches it copies by "rep movsb" if the processor has fast strings, since that need not fetch the lines it
// overwrites; else by std::memcpy. Over lines that others have read last it uses the technique that the process has
// measured as faster (base/staging_choice.hpp).
//
// Called by kernels.cc, PieceList, shm_allreduce_two_shot.cc, DirectTensor, round_data.hpp, RoundMemory and
// pair_probe.hpp; any thread. The copied bytes are visible to a thread that sees a later release store of this thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/staging_choice.hpp"

namespace ciranda {

// Smaller copies use std::memcpy: the other techniques take longer to start than they save.
inline constexpr std::size_t kLeastStagingBytes = 4096;

// REQUIRES, here and below: the ranges do not overlap.
inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t n_bytes) {
  if (n_bytes > 0) std::memcpy(to, from, n_bytes);
}

void copy_by(StagingCopy technique, std::byte* to, const std::byte* from, std::size_t n_bytes);

// The core that has last read the overwritten lines. Lines that this core has read stay in its caches.
enum class ReadLast : std::uint8_t { kHere, kElsewhere };

void copy_much_for_others(std::byte* to, const std::byte* from, std::size_t n_bytes, ReadLast read_last);

inline void copy_for_others(std::byte* to, const std::byte* from, std::size_t n_bytes, ReadLast read_last) {
  if (n_bytes < kLeastStagingBytes) return copy_bytes(to, from, n_bytes);
  copy_much_for_others(to, from, n_bytes, read_last);
}

}  // namespace ciranda
