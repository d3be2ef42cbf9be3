// Guarded: the memory of one tensor, at a chosen misalignment, between bytes that must not change.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ciranda::testing {

class Guarded {
 public:
  static constexpr std::size_t kAligned = 0;
  static constexpr std::size_t kMisaligned = 1;

  // Filled with a pattern that no result has by chance.
  Guarded(std::size_t n_bytes, std::size_t misalignment)
      : n_bytes_(n_bytes), bytes_(kLine + kLine + n_bytes + kLine, kGuard) {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data());
    begin_ = kLine + (kLine - address % kLine) % kLine + misalignment;
  }
  Guarded(std::span<const std::byte> content, std::size_t misalignment) : Guarded(content.size(), misalignment) {
    std::copy(content.begin(), content.end(), data());
  }

  std::byte* data() { return bytes_.data() + begin_; }
  std::span<const std::byte> bytes() const { return std::span(bytes_).subspan(begin_, n_bytes_); }

  bool holds(std::span<const std::byte> expected) const {
    return std::equal(expected.begin(), expected.end(), bytes().begin(), bytes().end());
  }
  // Nothing was written before or behind the tensor.
  bool is_intact() const {
    const auto is_guard = [](std::byte byte) { return byte == kGuard; };
    const auto begin = bytes_.begin() + static_cast<std::ptrdiff_t>(begin_);
    return std::all_of(bytes_.begin(), begin, is_guard) &&
           std::all_of(begin + static_cast<std::ptrdiff_t>(n_bytes_), bytes_.end(), is_guard);
  }

 private:
  static constexpr std::byte kGuard{0xA5};
  static constexpr std::size_t kLine = 64;

  std::size_t n_bytes_;
  std::vector<std::byte> bytes_;
  std::size_t begin_ = 0;
};

}  // namespace ciranda::testing
