// PageWatch: memory that counts how often it is gone through. Its pages are kept inaccessible but for the two touched
// last; touching another one is caught and counted. So one pass over the memory, from one end to the other, in steps of
// any size, counts every page once, and a second pass counts it again.
//
// Any threads may touch the memory, but one at a time. Only for tests: it takes SIGSEGV over while any watch lives.
#pragma once

#include <array>
#include <cstddef>

namespace ciranda::kernels::testing {

class PageWatch {
 public:
  explicit PageWatch(std::size_t n_bytes);  // whole pages; zero at first
  ~PageWatch();
  PageWatch(const PageWatch&) = delete;
  PageWatch& operator=(const PageWatch&) = delete;

  std::byte* data() const { return data_; }
  std::size_t n_bytes() const { return n_bytes_; }

  // Counts from here on.
  void start();
  // Ends the count: how often the memory was gone through since start(). Half of it once is 0.5.
  double n_passes();

  // What the signal handler does: whether the address was this watch's.
  bool touch(const void* address);

 private:
  void allow(std::byte* page, bool access) const;

  std::byte* data_;
  std::size_t n_bytes_;
  std::size_t n_touched_ = 0;  // pages
  bool is_counting_ = false;
  std::array<std::byte*, 2> open_{};  // the pages that are accessible; the older one first
};

}  // namespace ciranda::kernels::testing
