// value * factor / divisor of integers, also if double cannot represent the product.
//
// The quotient is computed exactly. Below 2^53, where double has fractions, it is rounded to double; then it is rounded
// toward zero. The first step allows for a factor that is itself rounded: 3 times the double next to 1/3 is 1, not 0.
// Pure; any thread; cannot fail.
//
// Called by scaled_integers.hpp.
#pragma once

#include <cstdint>

namespace ciranda::kernels {

__extension__ using Int128 = __int128;
__extension__ using UInt128 = unsigned __int128;

// The limit of results in both directions: the first power of two beyond all 64-bit integers.
inline constexpr Int128 kScaledLimit = Int128{1} << 64;

// REQUIRES: |value| < 2^95; factor is finite; divisor > 0.
Int128 scaled(Int128 value, double factor, std::uint32_t divisor);

}  // namespace ciranda::kernels
