// Launches of twins, and memory at chosen alignments, for the tests of the kernels.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "backend/cuda/kernels/launches.hpp"
#include "fakes/twins.hpp"

namespace ciranda::cuda::testing {

using Bytes = std::vector<std::byte>;

struct Shape {
  unsigned n_blocks = 2;
  unsigned n_threads = 32;
};

template <class Arguments>
void launch(Kernel kernel, const Arguments& arguments, const Shape& shape = {}) {
  const fakes::Twin* twin = fakes::find_twin(to_string(kernel));
  ASSERT_NE(twin, nullptr) << to_string(kernel);
  Arguments copy = arguments;
  void* parameters[] = {&copy};
  twin->run(parameters, shape.n_blocks, shape.n_threads);
}

// Memory that begins so many bytes behind a multiple of 16, between guard bytes.
class Tensor {
 public:
  Tensor(std::size_t n_bytes, std::size_t misaligned_by) : n_bytes_(n_bytes), bytes_(n_bytes + 128, kGuard) {
    const std::size_t to_boundary = (0 - reinterpret_cast<std::uintptr_t>(bytes_.data())) % 16;
    offset_ = to_boundary + 32 + misaligned_by;
  }
  Tensor(const Bytes& content, std::size_t misaligned_by) : Tensor(content.size(), misaligned_by) {
    std::copy(content.begin(), content.end(), data());
  }

  std::byte* data() { return bytes_.data() + offset_; }
  const std::byte* data() const { return bytes_.data() + offset_; }
  std::size_t n_bytes() const { return n_bytes_; }
  Bytes content() const { return {data(), data() + n_bytes_}; }
  bool guards_stand() const {
    const auto is_guard = [](std::byte byte) { return byte == kGuard; };
    return std::all_of(bytes_.data(), data(), is_guard) &&
           std::all_of(data() + n_bytes_, bytes_.data() + bytes_.size(), is_guard);
  }

 private:
  static constexpr std::byte kGuard{0xA5};

  std::size_t n_bytes_;
  Bytes bytes_;
  std::size_t offset_ = 0;
};

}  // namespace ciranda::cuda::testing
