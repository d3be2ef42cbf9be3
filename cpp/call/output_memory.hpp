// OutputMemory: memory for results, which is kept when its owner lets go of it, and given out again.
//
// Memory that comes fresh from the system is cleared page by page when it is first touched. For a result of some MiB
// that takes longer than bringing the result (docs/performance.md), and malloc gives memory of that size back at once.
// So the larger results have blocks that are kept for the next one of about that size. The system may take what is kept
// in huge pages when it is short of memory; no more than kMostKept is kept, and nothing that has not been wanted for
// long.
//
// Threads: any. Nobody waits for another: who comes at the same time gets, or gives back, fresh memory. Results outlive
// this object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/place.hpp"

namespace ciranda {

// Memory for one tensor of a result, aligned to 64 bytes; keeps itself alive.
struct OutputBuffer {
  std::shared_ptr<std::byte> data;
  std::size_t n_bytes = 0;
  std::vector<std::int64_t> shape;
  Place place = {};  // of a call's tensors on a device: there, as soon as the queue has come to it
};

// Fresh memory of n_bytes (at least one cache line), aligned to 64 bytes; null data when there is none.
OutputBuffer allocate_output(std::size_t n_bytes, std::vector<std::int64_t> shape);

class OutputMemory {
 public:
  static constexpr std::size_t kLeastKept = 16 << 10;   // of one; below, malloc does as well
  static constexpr std::size_t kMostKept = 256U << 20;  // of all
  static constexpr int kTakesUntilOld = 64;             // that have not wanted a block, until it is given back

  OutputMemory();

  // As allocate_output().
  OutputBuffer allocate(std::size_t n_bytes, std::vector<std::int64_t> shape) const;

 private:
  class Kept;
  std::shared_ptr<Kept> kept_;
};

}  // namespace ciranda
