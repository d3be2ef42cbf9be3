// Scalar conversions between float and the two 16-bit floating-point formats.
//
// Pure functions; any thread; they cannot fail. To float: exact, for subnormals and infinities too. From float: one
// rounding, to nearest even, with overflow to infinity and gradual underflow. Every NaN, whatever its sign and payload,
// becomes the format's canonical NaN (quiet, positive). The kernels give the same bits. The functions do not depend on
// the floating-point environment (rounding mode, flush to zero).
//
// Called by kernels/adasum.hpp.
#pragma once

#include <bit>
#include <cstdint>

namespace ciranda::kernels {

inline constexpr std::uint16_t kFloat16Nan = 0x7E00;
inline constexpr std::uint16_t kBFloat16Nan = 0x7FC0;
inline constexpr std::uint32_t kFloat32Nan = 0x7FC00000;

constexpr float float_from_bfloat16(std::uint16_t bfloat16) {
  const std::uint32_t bits = std::uint32_t{bfloat16} << 16;
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return std::bit_cast<float>(kFloat32Nan);
  return std::bit_cast<float>(bits);
}

constexpr std::uint16_t bfloat16_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return kBFloat16Nan;
  return static_cast<std::uint16_t>((bits + ((bits >> 16) & 1U) + 0x7FFFU) >> 16);
}

constexpr float float_from_float16(std::uint16_t float16) {
  const std::uint32_t sign = (float16 & 0x8000U) << 16;
  const std::uint32_t exponent = (float16 >> 10) & 0x1FU;
  std::uint32_t mantissa = float16 & 0x3FFU;
  if (exponent == 0x1F) return std::bit_cast<float>(mantissa != 0 ? kFloat32Nan : sign | 0x7F800000U);
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  if (mantissa == 0) return std::bit_cast<float>(sign);
  const auto shift = static_cast<std::uint32_t>(std::countl_zero(mantissa)) - 21;  // brings the leading 1 to bit 10
  mantissa = (mantissa << shift) & 0x3FFU;
  return std::bit_cast<float>(sign | ((113 - shift) << 23) | (mantissa << 13));
}

constexpr std::uint16_t float16_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  const auto with_sign = [sign](std::uint32_t rounded) { return static_cast<std::uint16_t>(sign | rounded); };
  if (magnitude > 0x7F800000U) return kFloat16Nan;
  if (magnitude >= 0x47800000U) return with_sign(0x7C00);  // 2^16 and above
  if (magnitude >= 0x38800000U) {                          // normal as a half; rounding may carry into infinity
    return with_sign((magnitude - 0x38000000U + 0x0FFFU + ((magnitude >> 13) & 1U)) >> 13);
  }
  if (magnitude <= 0x33000000U) return with_sign(0);    // at most half of the smallest subnormal
  const std::uint32_t shift = 126 - (magnitude >> 23);  // 14 to 24: from units of the float to units of 2^-24
  const std::uint32_t mantissa = (magnitude & 0x7FFFFFU) | 0x800000U;
  const std::uint32_t quotient = mantissa >> shift;
  const std::uint32_t rest = mantissa & ((1U << shift) - 1);
  const std::uint32_t tie = 1U << (shift - 1);
  const bool up = rest > tie || (rest == tie && (quotient & 1U) != 0);
  return with_sign(quotient + (up ? 1 : 0));
}

}  // namespace ciranda::kernels
