// Conversion of float32 to bfloat16 for transfers: the upper 16 bits, rounded to nearest even.
//
// Pure functions, callable from any thread, with the same results at every SIMD level. Every NaN becomes the quiet,
// positive NaN without payload; numbers that are too large become infinity. Memory needs no alignment.
//
// Called by Rounding, RoundedStream, direct_allreduce_by_hosts.cc, direct_allreduce_doubling.cc and
// direct_allreduce_two_shot.cc.
#pragma once

#include <cstddef>
#include <span>

namespace ciranda::kernels {

// Rounds `count` float32 to values that bfloat16 can represent; the results are float32. `to` may be `from` itself.
void round_to_bfloat16(const std::byte* from, std::byte* to, std::size_t count);
inline void round_to_bfloat16(std::span<std::byte> values) {
  round_to_bfloat16(values.data(), values.data(), values.size() / sizeof(float));
}

// Rounds in the same way, and writes bfloat16: 2 * count bytes.
void pack_bfloat16(const std::byte* from, std::byte* to, std::size_t count);

// Converts `count` bfloat16 to float32, exactly. pack_bfloat16() and then unpack_bfloat16() is round_to_bfloat16().
void unpack_bfloat16(const std::byte* from, std::byte* to, std::size_t count);

}  // namespace ciranda::kernels
