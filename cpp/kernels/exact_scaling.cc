#include "kernels/exact_scaling.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>

namespace ciranda::kernels {
namespace {

constexpr int kDoubleBits = 53;  // of a mantissa

// size * mantissa * 2^64 / divisor, in 64-bit digits, least significant first.
struct Quotient {
  std::array<std::uint64_t, 4> digits;
  bool is_inexact;
};

Quotient divided(UInt128 size, std::uint64_t mantissa, std::uint32_t divisor) {
  const UInt128 low = UInt128{static_cast<std::uint64_t>(size)} * mantissa;
  const UInt128 high = (size >> 64) * mantissa + (low >> 64);
  Quotient quotient{
      {0, static_cast<std::uint64_t>(low), static_cast<std::uint64_t>(high), static_cast<std::uint64_t>(high >> 64)},
      false};
  std::uint64_t rest = 0;
  for (std::size_t i = quotient.digits.size(); i-- > 0;) {
    const UInt128 part = (UInt128{rest} << 64) | quotient.digits[i];
    quotient.digits[i] = static_cast<std::uint64_t>(part / divisor);
    rest = static_cast<std::uint64_t>(part % divisor);
  }
  quotient.is_inexact = rest != 0;
  return quotient;
}

// A number, rounded down to bits * 2^exponent; the highest bit of `bits` is set. is_inexact: the number is larger.
struct Leading {
  std::uint64_t bits;
  int exponent;
  bool is_inexact;
};

// REQUIRES: a digit other than the lowest is not zero.
Leading leading(const Quotient& quotient) {
  std::size_t top = quotient.digits.size() - 1;
  while (quotient.digits[top] == 0) --top;
  const int shift = std::countl_zero(quotient.digits[top]);
  const UInt128 bits = ((UInt128{quotient.digits[top]} << 64) | quotient.digits[top - 1]) << shift;
  bool is_inexact = quotient.is_inexact || static_cast<std::uint64_t>(bits) != 0;
  for (std::size_t i = 0; i + 1 < top; ++i) is_inexact = is_inexact || quotient.digits[i] != 0;
  return {static_cast<std::uint64_t>(bits >> 64), static_cast<int>(64 * top) - shift, is_inexact};
}

}  // namespace

Int128 scaled(Int128 value, double factor, std::uint32_t divisor) {
  if (value == 0 || factor == 0.0) return 0;
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(factor), &exponent);
  const auto mantissa = static_cast<std::uint64_t>(std::ldexp(fraction, kDoubleBits));
  const bool is_negative = (value < 0) != (factor < 0);
  // The mantissa's leading bit is set, so the quotient has more than 64 bits, as leading() requires.
  Leading size =
      leading(divided(value < 0 ? -static_cast<UInt128>(value) : static_cast<UInt128>(value), mantissa, divisor));
  size.exponent += exponent - kDoubleBits - 64;
  Int128 result = kScaledLimit;
  if (size.exponent + 64 <= kDoubleBits) {
    // A sticky bit: the last bit represents all bits that were cut off, so that the conversion rounds correctly.
    const double rounded = std::ldexp(static_cast<double>(size.bits | (size.is_inexact ? 1 : 0)), size.exponent);
    result = static_cast<Int128>(rounded);
  } else if (size.exponent <= 0) {
    result = size.bits >> -size.exponent;
  }
  return is_negative ? -result : result;
}

}  // namespace ciranda::kernels
