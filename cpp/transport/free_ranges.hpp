// FreeRanges: which bytes of a piece of memory are free: an allocator that keeps its books elsewhere. Who asks gets the
// smallest range that has room; neighbours that are given back become one again. Pure; one thread.
#pragma once

#include <cstddef>
#include <map>
#include <optional>

namespace ciranda {

class FreeRanges {
 public:
  // All of it is free.
  explicit FreeRanges(std::size_t n_bytes);

  // Where n_bytes begin that are free no more; none if there is no room. REQUIRES: n_bytes > 0.
  std::optional<std::size_t> take(std::size_t n_bytes, std::size_t alignment);
  // REQUIRES: they were taken, as a whole or not.
  void give_back(std::size_t offset, std::size_t n_bytes);

  bool are_all_free() const { return n_free_ == n_bytes_; }

 private:
  std::size_t n_bytes_;
  std::size_t n_free_;
  std::map<std::size_t, std::size_t> ranges_;  // n_bytes by offset; no two touch
};

}  // namespace ciranda
