// Guarded: the memory of one tensor, at a chosen misalignment, between bytes that must not change. It lies where the
// tensors of this thread's rank do (homes.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/homes.hpp"

namespace ciranda::testing {

class Guarded {
 public:
  static constexpr std::size_t kAligned = 0;
  static constexpr std::size_t kMisaligned = 1;

  // Filled with a pattern that no result has by chance.
  Guarded(std::size_t n_bytes, std::size_t misalignment) : Guarded(n_bytes, misalignment, {}) {}
  Guarded(std::span<const std::byte> content, std::size_t misalignment)
      : Guarded(content.size(), misalignment, content) {}

  std::byte* data() { return memory() + begin_; }
  // As they are now.
  std::span<const std::byte> bytes() const {
    if (on_device_ != nullptr) read(home_, bytes_, on_device_.get());
    return std::span(bytes_).subspan(begin_, n_bytes_);
  }

  bool holds(std::span<const std::byte> expected) const {
    return std::equal(expected.begin(), expected.end(), bytes().begin(), bytes().end());
  }
  // Nothing was written before or behind the tensor.
  bool is_intact() const {
    bytes();
    const auto is_guard = [](std::byte byte) { return byte == kGuard; };
    const auto begin = bytes_.begin() + static_cast<std::ptrdiff_t>(begin_);
    return std::all_of(bytes_.begin(), begin, is_guard) &&
           std::all_of(begin + static_cast<std::ptrdiff_t>(n_bytes_), bytes_.end(), is_guard);
  }

 private:
  static constexpr std::byte kGuard{0xA5};
  static constexpr std::size_t kLine = 64;

  Guarded(std::size_t n_bytes, std::size_t misalignment, std::span<const std::byte> content)
      : n_bytes_(n_bytes), bytes_(kLine + kLine + n_bytes + kLine, kGuard) {
    if (home_.device != nullptr) on_device_ = home_.allocate(home_.place, bytes_.size());
    const auto address = reinterpret_cast<std::uintptr_t>(memory());
    begin_ = kLine + (kLine - address % kLine) % kLine + misalignment;
    std::copy(content.begin(), content.end(), bytes_.begin() + static_cast<std::ptrdiff_t>(begin_));
    if (on_device_ != nullptr) write(home_, on_device_.get(), bytes_);
  }

  std::byte* memory() { return on_device_ != nullptr ? on_device_.get() : bytes_.data(); }

  std::size_t n_bytes_;
  mutable std::vector<std::byte> bytes_;  // or what was last read from the device
  Home home_ = home();
  std::shared_ptr<std::byte> on_device_;
  std::size_t begin_ = 0;
};

}  // namespace ciranda::testing
