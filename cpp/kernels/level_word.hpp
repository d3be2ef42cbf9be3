// Loads up to eight bytes into a word, and stores them. For any alignment.
//
// Included by level_*.cc only; the rules of level_vector.hpp hold.
//
// Called by level_reduce.hpp; pure.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ciranda::kernels {
namespace {  // NOLINT(google-build-namespaces): see level_vector.hpp

inline constexpr std::size_t kWordBytes = sizeof(std::uint64_t);

// Four to eight bytes, as the first four and the last four; these overlap if there are fewer than eight.
struct Halves {
  std::uint32_t low, high;
};

// The rest of the word is zero. REQUIRES, as store_word(): n_bytes <= kWordBytes.
[[gnu::always_inline]] inline std::uint64_t load_word(const std::byte* from, std::size_t n_bytes) {
  if (n_bytes >= sizeof(std::uint32_t)) {
    Halves halves;
    __builtin_memcpy(&halves.low, from, sizeof halves.low);
    __builtin_memcpy(&halves.high, from + n_bytes - sizeof halves.high, sizeof halves.high);
    return halves.low | std::uint64_t{halves.high} << (n_bytes - sizeof halves.high) * 8;
  }
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < n_bytes; ++i) word |= std::uint64_t{static_cast<std::uint8_t>(from[i])} << i * 8;
  return word;
}

[[gnu::always_inline]] inline void store_word(std::byte* to, std::uint64_t word, std::size_t n_bytes) {
  if (n_bytes >= sizeof(std::uint32_t)) {
    const Halves halves{static_cast<std::uint32_t>(word),
                        static_cast<std::uint32_t>(word >> (n_bytes - sizeof halves.high) * 8)};
    __builtin_memcpy(to, &halves.low, sizeof halves.low);
    __builtin_memcpy(to + n_bytes - sizeof halves.high, &halves.high, sizeof halves.high);
    return;
  }
  for (std::size_t i = 0; i < n_bytes; ++i) to[i] = static_cast<std::byte>(word >> i * 8);
}

}  // namespace
}  // namespace ciranda::kernels
