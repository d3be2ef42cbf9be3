// The numbers in the measured collectives: the C++ type of each DataType, and small whole numbers of each type.
//
// Pure functions; any thread; they cannot fail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/half.hpp"
#include "system.hpp"

namespace peers {

struct Float16 {
  std::uint16_t bits;
  bool operator==(const Float16&) const = default;
};
struct BFloat16 {
  std::uint16_t bits;
  bool operator==(const BFloat16&) const = default;
};

template <typename T>
T number(float value);
template <>
inline float number<float>(float value) {
  return value;
}
template <>
inline Float16 number<Float16>(float value) {
  return {ciranda::kernels::float16_from_float(value)};
}
template <>
inline BFloat16 number<BFloat16>(float value) {
  return {ciranda::kernels::bfloat16_from_float(value)};
}

// Calls use.operator()<T>() with the C++ type T of `dtype`.
template <typename Use>
decltype(auto) with_type(DataType dtype, Use&& use) {
  if (dtype == DataType::kFloat16) return use.template operator()<Float16>();
  if (dtype == DataType::kBFloat16) return use.template operator()<BFloat16>();
  return use.template operator()<float>();
}

template <typename T>
std::span<T> as(std::span<std::byte> memory) {
  return {reinterpret_cast<T*>(memory.data()), memory.size() / sizeof(T)};
}
template <typename T>
std::span<const T> as(std::span<const std::byte> memory) {
  return {reinterpret_cast<const T*>(memory.data()), memory.size() / sizeof(T)};
}

}  // namespace peers
