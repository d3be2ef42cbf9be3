#include "heap_meter.hpp"

#include <malloc.h>

#include <cstdlib>
#include <new>

namespace {

// Bytes from operator new that are in use on this thread, and the most there were.
struct Count {
  std::size_t now = 0;
  std::size_t peak = 0;
};
thread_local Count count;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables): operator new has no object

void* counted_or_null(std::size_t n_bytes) noexcept {
  void* memory = std::malloc(n_bytes);  // NOLINT(cppcoreguidelines-no-malloc)
  if (memory == nullptr) return nullptr;
  count.now += malloc_usable_size(memory);
  if (count.now > count.peak) count.peak = count.now;
  return memory;
}

void* counted(std::size_t n_bytes) {
  void* memory = counted_or_null(n_bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void give_back(void* memory) {
  if (memory == nullptr) return;
  count.now -= malloc_usable_size(memory);
  std::free(memory);  // NOLINT(cppcoreguidelines-no-malloc)
}

}  // namespace

void* operator new(std::size_t n_bytes) { return counted(n_bytes); }
void* operator new[](std::size_t n_bytes) { return counted(n_bytes); }
// std::stable_sort asks for its buffer in this way.
void* operator new(std::size_t n_bytes, const std::nothrow_t& /*tag*/) noexcept { return counted_or_null(n_bytes); }
void* operator new[](std::size_t n_bytes, const std::nothrow_t& /*tag*/) noexcept { return counted_or_null(n_bytes); }
void operator delete(void* memory) noexcept { give_back(memory); }
void operator delete[](void* memory) noexcept { give_back(memory); }
void operator delete(void* memory, std::size_t /*n_bytes*/) noexcept { give_back(memory); }
void operator delete[](void* memory, std::size_t /*n_bytes*/) noexcept { give_back(memory); }

namespace ciranda::testing {

HeapMeter::HeapMeter() : before_(count.now) { count.peak = count.now; }

std::size_t HeapMeter::peak_bytes() const { return count.peak - before_; }

std::size_t HeapMeter::n_bytes() const { return count.now - before_; }

}  // namespace ciranda::testing
