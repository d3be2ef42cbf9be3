// A checksum of 64 bits, to detect different contents of memory. It is not cryptographic.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace ciranda {

inline std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t seed = 0) {
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15;
  const auto mix = [](std::uint64_t sum, std::uint64_t word) { return std::rotl(sum ^ word, 29) * kOdd; };
  seed = mix(seed, bytes.size() + 1);
  // Four sums, so that the processor can work on all of them at once.
  std::array<std::uint64_t, 4> sums{seed, seed + 1, seed + 2, seed + 3};
  std::array<std::uint64_t, 4> words{};
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(sizeof words, bytes.size()))) {
    if (bytes.size() < sizeof words) words.fill(0);
    std::memcpy(words.data(), bytes.data(), std::min(sizeof words, bytes.size()));
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = mix(sums[i], words[i]);
  }
  std::uint64_t sum = 0;
  for (const std::uint64_t one : sums) sum = mix(sum, one ^ one >> 32);
  return sum ^ sum >> 29;
}

}  // namespace ciranda
