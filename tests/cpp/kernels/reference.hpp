// A plain reference for the kernels, written from their contract and sharing no code with them: one element at a time,
// 16-bit floats through double arithmetic, the combining order by recursion. Also what the tests feed them with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/kernels.hpp"

namespace ciranda::kernels::testing {

// A binary floating-point format of 16 bits.
struct SmallFloat {
  int n_exponent_bits;
  int n_mantissa_bits;
  bool operator==(const SmallFloat&) const = default;
};
inline constexpr SmallFloat kFloat16{5, 10};
inline constexpr SmallFloat kBFloat16{8, 7};

double widened(const SmallFloat& format, std::uint16_t bits);
std::uint16_t rounded(const SmallFloat& format, float value);  // NaN becomes canonical_nan
std::uint16_t infinity(const SmallFloat& format);
std::uint16_t canonical_nan(const SmallFloat& format);

using Bytes = std::vector<std::byte>;

// n tensors of count elements. Seeded. Every 8 elements are alike in kind: small numbers whose sums and averages are
// telling, any bit pattern at all, and special values (infinities, NaNs, zeros, extremes).
std::vector<Bytes> make_inputs(DataType dtype, std::size_t n, std::size_t count, std::uint64_t seed);

// What reduce() must write.
Bytes expected(const Reduction& reduction, const std::vector<Bytes>& inputs, std::size_t count);

// All levels that this machine can run.
std::vector<SimdLevel> levels();

// "average float16 n=3 ..."
std::string describe(const Reduction& reduction, std::size_t n);

// Sets the level for as long as it lives.
class ScopedLevel {
 public:
  explicit ScopedLevel(SimdLevel level) : before_(active_simd_level()) { set_simd_level(level); }
  ~ScopedLevel() { set_simd_level(before_); }
  ScopedLevel(const ScopedLevel&) = delete;
  ScopedLevel& operator=(const ScopedLevel&) = delete;

 private:
  SimdLevel before_;
};

}  // namespace ciranda::kernels::testing
