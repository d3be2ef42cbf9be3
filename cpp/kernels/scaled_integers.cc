#include "kernels/scaled_integers.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/exact_scaling.hpp"
#include "kernels/integer_types.hpp"

namespace ciranda::kernels {
namespace {

constexpr std::size_t kBlockCount = 512;  // elements; the accumulators of a block stay in the first-level cache

template <class T>
using WideOf = std::conditional_t<sizeof(T) == 8, Int128, std::int64_t>;

template <class T>
T saturated(Int128 value) {
  using Limits = std::numeric_limits<T>;
  return static_cast<T>(std::clamp<Int128>(value, Limits::min(), Limits::max()));
}

// Equal to scaled(). If double represents the value exactly, and the product is below 2^53, one multiplication rounds
// in the same way.
template <class T>
T scaled_to(WideOf<T> value, double factor, std::uint32_t divisor) {
  constexpr std::int64_t kWhole = std::int64_t{1} << std::numeric_limits<double>::digits;
  if (divisor == 1 && -kWhole <= value && value <= kWhole) {
    const double product = static_cast<double>(value) * factor;
    if (std::fabs(product) < static_cast<double>(kWhole)) return saturated<T>(static_cast<std::int64_t>(product));
  }
  return saturated<T>(scaled(value, factor, divisor));
}

template <class T>
class ScaledInteger {
 public:
  using Wide = WideOf<T>;
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
        for (std::size_t i = 0; i < count; ++i) values[i] = scaled_to<T>(values[i], reduction_.prescale, 1);
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
    switch (reduction_.op) {
      case ReduceOp::kMin: return apply([](Wide a, Wide b) { return std::min(a, b); });
      case ReduceOp::kMax: return apply([](Wide a, Wide b) { return std::max(a, b); });
      case ReduceOp::kProduct: return apply([](Wide a, Wide b) { return wrapping_product(a, b); });
      default: return apply([](Wide a, Wide b) { return a + b; });
    }
  }

  // Only the low bits are correct, and only they are used.
  static Wide wrapping_product(Wide a, Wide b) {
    return static_cast<Wide>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  }

  // Sums and products wrap to T before they are scaled, as they do without a factor.
  T finished(Wide total) const {
    if (reduction_.op == ReduceOp::kAverage) return average(total);
    const T value = static_cast<T>(total);
    return reduction_.postscale == 1.0 ? value : scaled_to<T>(value, reduction_.postscale, 1);
  }

  T average(Wide sum) const {
    const auto n = static_cast<std::uint32_t>(reduction_.n_average);
    if (reduction_.postscale != 1.0) return scaled_to<T>(sum, reduction_.postscale, n);
    return static_cast<T>(sum / n);
  }

  Reduction reduction_;
};

}  // namespace

void reduce_scaled_integers(const Reduction& reduction, std::span<const std::byte* const> inputs, std::byte* out,
                            std::size_t count) {
  with_integer(reduction.dtype, [&]<class T>(T) { ScaledInteger<T>(reduction).run(inputs, out, count); });
}

}  // namespace ciranda::kernels
