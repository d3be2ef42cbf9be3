#include "kernels/adasum.hpp"

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/cpu.hpp"
#include "kernels/half.hpp"

namespace ciranda::kernels {
namespace {

// Element i is added to lane i mod kLanes, whatever the width of a register; the lanes are then added in their order.
constexpr std::size_t kLanes = 8;

struct LaneSums {
  std::array<double, kLanes> ab{}, aa{}, bb{};

  Dots total() const {
    Dots dots;
    for (std::size_t lane = 0; lane < kLanes; ++lane) dots.add({ab[lane], aa[lane], bb[lane]});
    return dots;
  }
};

template <class T>
Dots dots_of(std::span<const T> a, std::span<const T> b) {
  const ScopedFloatEnvironment environment;
  LaneSums sums;
  const auto add = [&](std::size_t i, std::size_t lane) {
    const double x = static_cast<double>(a[i]);
    const double y = static_cast<double>(b[i]);
    sums.ab[lane] += x * y;
    sums.aa[lane] += x * x;
    sums.bb[lane] += y * y;
  };
  std::size_t i = 0;
  for (; i + kLanes <= a.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
  }
  for (std::size_t lane = 0; i + lane < a.size(); ++lane) add(i + lane, lane);
  return sums.total();
}

double share(double product, double square) { return square == 0 ? 1.0 : 1.0 - product / (2.0 * square); }

template <class T>
void adasum_of(const Dots& whole, std::span<T> a, std::span<const T> b) {
  const ScopedFloatEnvironment environment;
  const auto share_of_a = static_cast<T>(share(whole.ab, whole.aa));
  const auto share_of_b = static_cast<T>(share(whole.ab, whole.bb));
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = share_of_a * a[i] + share_of_b * b[i];
}

template <class T>
T canonical(T value) {
  return std::isnan(value) ? std::numeric_limits<T>::quiet_NaN() : value;
}

std::uint16_t load_half(const std::byte* from, std::size_t i) {
  std::uint16_t half = 0;
  std::memcpy(&half, from + i * sizeof half, sizeof half);
  return half;
}

void store_half(std::byte* to, std::size_t i, std::uint16_t half) {
  std::memcpy(to + i * sizeof half, &half, sizeof half);
}

}  // namespace

Dots dots(std::span<const float> a, std::span<const float> b) { return dots_of(a, b); }
Dots dots(std::span<const double> a, std::span<const double> b) { return dots_of(a, b); }

void adasum(const Dots& whole, std::span<float> a, std::span<const float> b) { adasum_of(whole, a, b); }
void adasum(const Dots& whole, std::span<double> a, std::span<const double> b) { adasum_of(whole, a, b); }

void widen(DataType dtype, const std::byte* from, double factor, std::span<float> to) {
  const ScopedFloatEnvironment environment;
  const auto f = static_cast<float>(factor);
  if (dtype == DataType::kFloat16) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = f * float_from_float16(load_half(from, i));
  } else if (dtype == DataType::kBFloat16) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = f * float_from_bfloat16(load_half(from, i));
  } else {
    if (!to.empty()) std::memmove(to.data(), from, to.size_bytes());
    if (factor == 1.0) return;
    for (float& value : to) value *= f;
  }
}

void narrow(DataType dtype, std::span<const float> from, double factor, std::byte* to) {
  const ScopedFloatEnvironment environment;
  const auto f = static_cast<float>(factor);
  if (dtype == DataType::kFloat16) {
    for (std::size_t i = 0; i < from.size(); ++i) store_half(to, i, float16_from_float(f * from[i]));
  } else if (dtype == DataType::kBFloat16) {
    for (std::size_t i = 0; i < from.size(); ++i) store_half(to, i, bfloat16_from_float(f * from[i]));
  } else {
    for (std::size_t i = 0; i < from.size(); ++i) {
      const float value = canonical(f * from[i]);
      std::memcpy(to + i * sizeof value, &value, sizeof value);
    }
  }
}

void scale(double factor, std::span<double> values) {
  const ScopedFloatEnvironment environment;
  for (double& value : values) value = canonical(factor * value);
}

}  // namespace ciranda::kernels
