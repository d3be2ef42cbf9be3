// The checksums of ranges of a GPU's memory (base/checksum.hpp), computed there by one launch.
//
// Called by Gpu, on the GPU's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/cuda/copy_stream.hpp"

namespace ciranda::cuda {

using ByteRanges = std::vector<std::span<const std::byte>>;

// The size of the pinned block that the next two use. REQUIRES: there are ranges.
std::size_t checksum_block_bytes(const ByteRanges& ranges);
// Queues the work in the stream. The event that is returned passes when it is done; until then the block is in use, and
// nothing may write to the ranges. REQUIRES: the GPU has kernels.
Result<std::shared_ptr<const Event>> queue_checksums(const GpuParts& gpu, CUstream stream, const ByteRanges& ranges,
                                                     std::byte* block);
// By range. REQUIRES: the event has passed.
std::vector<std::uint64_t> checksums_in(const std::byte* block, const ByteRanges& ranges);

// The same of copies in host memory, without pinned memory. Waits for the copies.
Result<std::vector<std::uint64_t>> checksums_by_host(const GpuParts& gpu, CUstream stream, const ByteRanges& ranges);

}  // namespace ciranda::cuda
