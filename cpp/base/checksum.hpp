// A checksum of 64 bits, to detect different contents of memory. It is not cryptographic.
//
// The memory is divided into blocks, and the checksums of the blocks are added, so a GPU can compute them in parallel
// (backend/cuda/kernels/checksum.inc); each depends on the position of its block.
//
// Called by CostsFile, EngineHandle, preparation.hpp, Consistency, ExaminedDevice and backend/cuda/checksums.hpp; pure.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace ciranda {

inline constexpr std::size_t kChecksumBlockBytes = 1024;

namespace detail {

constexpr std::uint64_t mix(std::uint64_t sum, std::uint64_t word) {
  return std::rotl(sum ^ word, 29) * 0x9E3779B97F4A7C15;
}

inline std::uint64_t checksum_of_block(std::span<const std::byte> block, std::uint64_t seed) {
  // Four sums, so that the processor can work on all of them at once.
  std::array<std::uint64_t, 4> sums{seed, seed + 1, seed + 2, seed + 3};
  std::array<std::uint64_t, 4> words{};
  const auto add_words = [&] {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = mix(sums[i], words[i]);
  };
  for (; block.size() >= sizeof words; block = block.subspan(sizeof words)) {
    std::memcpy(words.data(), block.data(), sizeof words);
    add_words();
  }
  if (!block.empty()) {
    words.fill(0);
    std::memcpy(words.data(), block.data(), block.size());
    add_words();
  }
  std::uint64_t sum = 0;
  for (const std::uint64_t one : sums) sum = mix(sum, one ^ one >> 32);
  return sum ^ sum >> 29;
}

}  // namespace detail

// The checksum of memory of n_bytes whose blocks' checksums have this total.
constexpr std::uint64_t checksum_of_total(std::uint64_t total, std::size_t n_bytes, std::uint64_t seed = 0) {
  const std::uint64_t sum = detail::mix(detail::mix(seed, n_bytes + 1), total);
  return sum ^ sum >> 29;
}

inline std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t seed = 0) {
  const std::uint64_t of_size = detail::mix(seed, bytes.size() + 1);
  std::uint64_t total = 0;
  for (std::size_t block = 0; block * kChecksumBlockBytes < bytes.size(); ++block) {
    const auto rest = bytes.subspan(block * kChecksumBlockBytes);
    total +=
        detail::checksum_of_block(rest.first(std::min(kChecksumBlockBytes, rest.size())), detail::mix(of_size, block));
  }
  return checksum_of_total(total, bytes.size(), seed);
}

}  // namespace ciranda
