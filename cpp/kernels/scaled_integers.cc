#include "kernels/scaled_integers.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace ciranda::kernels {
namespace {

constexpr std::size_t kBlockCount = 512;  // elements; the accumulators of a block stay in the first-level cache

template <class T>
T saturated(double value) {
  using Limits = std::numeric_limits<T>;
  // 2^digits is exact in double, unlike the largest 64-bit integers; anything below it truncates into range.
  constexpr double kEnd = static_cast<double>(std::uint64_t{1} << (Limits::digits - 1)) * 2.0;
  if (value >= kEnd) return Limits::max();
  if (value > static_cast<double>(Limits::min()) - 1.0) return static_cast<T>(value);
  return value != value ? T{0} : Limits::min();
}

template <class T>
class ScaledInteger {
 public:
  using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
  using Sums = std::array<Wide, kBlockCount>;
  using Values = std::array<T, kBlockCount>;

  explicit ScaledInteger(const Reduction& reduction) : reduction_(reduction) {}

  void run(std::span<const std::byte* const> inputs, std::byte* out, std::size_t count) const {
    for (std::size_t at = 0; at < count; at += kBlockCount) {
      run_block(inputs, out, at, std::min(kBlockCount, count - at));
    }
  }

 private:
  void run_block(std::span<const std::byte* const> inputs, std::byte* out, std::size_t at, std::size_t count) const {
    Sums sums;
    Values values;
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      std::memcpy(values.data(), inputs[k] + at * sizeof(T), count * sizeof(T));
      if (reduction_.prescale != 1.0) {
        for (std::size_t i = 0; i < count; ++i) {
          values[i] = saturated<T>(static_cast<double>(values[i]) * reduction_.prescale);
        }
      }
      if (k == 0) {
        for (std::size_t i = 0; i < count; ++i) sums[i] = values[i];
      } else {
        accumulate(sums, values, count);
      }
    }
    for (std::size_t i = 0; i < count; ++i) values[i] = finished(sums[i]);
    std::memcpy(out + at * sizeof(T), values.data(), count * sizeof(T));
  }

  void accumulate(Sums& sums, const Values& values, std::size_t count) const {
    const auto apply = [&](auto combine) {
      for (std::size_t i = 0; i < count; ++i) sums[i] = combine(sums[i], static_cast<Wide>(values[i]));
    };
    const auto wrapping = [&](auto combine) {
      apply([&](Wide a, Wide b) {
        return static_cast<Wide>(combine(static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b)));
      });
    };
    switch (reduction_.op) {
      case ReduceOp::kMin: return apply([](Wide a, Wide b) { return std::min(a, b); });
      case ReduceOp::kMax: return apply([](Wide a, Wide b) { return std::max(a, b); });
      case ReduceOp::kProduct: return wrapping([](std::uint64_t a, std::uint64_t b) { return a * b; });
      default: return wrapping([](std::uint64_t a, std::uint64_t b) { return a + b; });
    }
  }

  // Sums and products wrap to T before they are scaled, as they would without a factor; averages divide all 64 bits.
  T finished(Wide sum) const {
    const bool average = reduction_.op == ReduceOp::kAverage;
    if (average && reduction_.postscale != 1.0) {
      return saturated<T>(static_cast<double>(sum) * reduction_.postscale / reduction_.n_average);
    }
    if (average) return static_cast<T>(divided(sum));
    const T value = static_cast<T>(sum);
    if (reduction_.postscale == 1.0) return value;
    return saturated<T>(static_cast<double>(value) * reduction_.postscale);
  }

  Wide divided(Wide sum) const { return sum / static_cast<Wide>(reduction_.n_average); }

  Reduction reduction_;
};

}  // namespace

void reduce_scaled_integers(const Reduction& reduction, std::span<const std::byte* const> inputs, std::byte* out,
                            std::size_t count) {
  switch (reduction.dtype) {
    case DataType::kUInt8: return ScaledInteger<std::uint8_t>(reduction).run(inputs, out, count);
    case DataType::kUInt16: return ScaledInteger<std::uint16_t>(reduction).run(inputs, out, count);
    case DataType::kUInt32: return ScaledInteger<std::uint32_t>(reduction).run(inputs, out, count);
    case DataType::kUInt64: return ScaledInteger<std::uint64_t>(reduction).run(inputs, out, count);
    case DataType::kInt8: return ScaledInteger<std::int8_t>(reduction).run(inputs, out, count);
    case DataType::kInt16: return ScaledInteger<std::int16_t>(reduction).run(inputs, out, count);
    case DataType::kInt32: return ScaledInteger<std::int32_t>(reduction).run(inputs, out, count);
    case DataType::kInt64: return ScaledInteger<std::int64_t>(reduction).run(inputs, out, count);
    default: return;  // not an integer: excluded by REQUIRES
  }
}

}  // namespace ciranda::kernels
