// FreeRanges: a best-fit allocator that keeps its records outside the memory that it manages. Adjacent free ranges are
// merged. Called by SharedRegions, under its mutex; pure.
#pragma once

#include <cstddef>
#include <map>
#include <optional>

namespace ciranda {

class FreeRanges {
 public:
  // All n_bytes are free at first.
  explicit FreeRanges(std::size_t n_bytes);

  // Allocates n_bytes and returns their offset; none if no free range is large enough. REQUIRES: n_bytes > 0.
  std::optional<std::size_t> take(std::size_t n_bytes, std::size_t alignment);
  // REQUIRES: all of these bytes are taken. They need not be a whole range that take() returned.
  void give_back(std::size_t offset, std::size_t n_bytes);

  bool are_all_free() const { return n_free_ == n_bytes_; }

 private:
  std::size_t n_bytes_;
  std::size_t n_free_;
  std::map<std::size_t, std::size_t> ranges_;  // sizes by offset; no two ranges are adjacent
};

}  // namespace ciranda
