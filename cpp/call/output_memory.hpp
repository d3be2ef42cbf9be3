// OutputMemory: memory for results. A block is kept when its owner frees it, and reused.
//
// The system clears fresh memory page by page when it is first touched. For a result of some MiB that takes longer than
// the transfer (docs/performance.md), and malloc returns memory of that size to the system at once. So blocks of larger
// results are kept for the next result of about that size. The system may reclaim kept huge pages when it is short of
// memory. At most kMostKept bytes are kept, and no block that has not been used for long.
//
// Called by Lane, RoundsInMemory, shared_memory.cc and execute/outputs.hpp, through WorldParts and InFlight; types used
// by Operation and bindings/python/outputs.hpp; blocks are freed by callers; any thread. No thread waits for another:
// if two meet, one allocates or frees memory instead. Results may outlive this object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/place.hpp"

namespace ciranda {

// Memory for one tensor of a result, aligned to 64 bytes; owned by `data`.
struct OutputBuffer {
  std::shared_ptr<std::byte> data;
  std::size_t n_bytes = 0;
  std::vector<std::int64_t> shape;
  Place place = {};  // on a device: see Operation::order()
};

// Fresh memory of n_bytes (at least one cache line), aligned to 64 bytes; null data if memory is exhausted.
OutputBuffer allocate_output(std::size_t n_bytes, std::vector<std::int64_t> shape);

class OutputMemory {
 public:
  static constexpr std::size_t kLeastKept = 16 << 10;   // for one block; below, malloc is as fast
  static constexpr std::size_t kMostKept = 256U << 20;  // for all blocks
  static constexpr int kTakesUntilOld = 64;  // a block is freed after so many allocations that did not use it

  OutputMemory();

  // As allocate_output(), from kept blocks if possible.
  OutputBuffer allocate(std::size_t n_bytes, std::vector<std::int64_t> shape) const;

  // The bytes of all kept blocks.
  std::size_t n_kept_bytes() const;

 private:
  class Kept;
  std::shared_ptr<Kept> kept_;
};

}  // namespace ciranda
