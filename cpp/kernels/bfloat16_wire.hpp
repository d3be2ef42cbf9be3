// float32 as it goes over a wire in 16 bits: bfloat16, its upper half, rounded to nearest even.
//
// Pure functions, callable from any thread, with the same bits at every SIMD level. A NaN becomes the one quiet,
// positive NaN without payload; what is too large becomes infinity. Memory needs no alignment.
#pragma once

#include <cstddef>
#include <span>

namespace ciranda::kernels {

// Rounds `count` float32 to what bfloat16 can hold. `to` may be `from` itself.
void round_to_bfloat16(const std::byte* from, std::byte* to, std::size_t count);
inline void round_to_bfloat16(std::span<std::byte> values) {
  round_to_bfloat16(values.data(), values.data(), values.size() / sizeof(float));
}

// The same, and keeps the upper halves only: 2 * count bytes.
void pack_bfloat16(const std::byte* from, std::byte* to, std::size_t count);

// Exact. pack, then unpack, is round.
void unpack_bfloat16(const std::byte* from, std::byte* to, std::size_t count);

}  // namespace ciranda::kernels
