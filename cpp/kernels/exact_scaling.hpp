// value * factor / divisor, of integers whose products double cannot hold.
//
// The quotient is computed exactly, and rounded once: to double where that has fractions (below 2^53), then toward
// zero. The first because a factor is itself rounded: 3 times the double next to 1/3 is 1, not 0. Pure; any thread;
// cannot fail.
#pragma once

#include <cstdint>

namespace ciranda::kernels {

__extension__ using Int128 = __int128;
__extension__ using UInt128 = unsigned __int128;

// The first power of two that no 64-bit integer reaches, in either direction: quotients go no further.
inline constexpr Int128 kScaledLimit = Int128{1} << 64;

// REQUIRES: |value| < 2^95; factor is finite; divisor > 0.
Int128 scaled(Int128 value, double factor, std::uint32_t divisor);

}  // namespace ciranda::kernels
