// scaled() against a table of exact fractions, against double where that is exact, and against what integers can do.
#include "kernels/exact_scaling.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace ciranda::kernels {
namespace {

constexpr Int128 kTwo53 = Int128{1} << 53;
constexpr Int128 kTwo62 = Int128{1} << 62;
constexpr Int128 kTwo63 = Int128{1} << 63;
constexpr Int128 kTwo94 = Int128{1} << 94;
constexpr double kThird = 1.0 / 3;

struct Row {
  Int128 value;
  double factor;
  std::uint32_t divisor;
  Int128 result;
};

// The results are those of Python's fractions.
TEST(ExactScaling, OfATable) {
  const Row rows[] = {
      {0, 5.0, 3, 0},
      {3, kThird, 1, 1},  // the fraction itself is a little less
      {7, kThird, 1, 2},
      {kTwo62 + 1, 0.5, 1, kTwo62 / 2},
      {kTwo62 + 3, 3.0, 4, 3458764513820540930},
      {kTwo63 - 1, 1.0, 3, 3074457345618258602},
      {kTwo63 - 1, 0.1, 1, 922337203685477631},
      {-kTwo63, -1.0, 1, kTwo63},
      {2 * kTwo63 - 1, 1.0, 1, 2 * kTwo63 - 1},
      {3 * (kTwo63 - 1), 5.0, 15, kTwo63 - 1},
      {kTwo53 + 1, 1.0, 1, kTwo53 + 1},
      {2 * kTwo53 + 6, 0.5, 2, kTwo53 / 2 + 2},  // 1.5 above, rounded to even
      {kTwo94, 0x1p-94, 1, 1},
      {kTwo94 + 1, 0x1p-40, 2147483647, 8388608},
      {1, 1e300, 1, kScaledLimit},
      {-1, 1e300, 1, -kScaledLimit},
      {1000000000000000000, 1e-300, 7, 0},
      {5, 5e-324, 1, 0},
      {kTwo53, 1 - 0x1p-53, 1, kTwo53 - 1},
      {kTwo53 - 1, 1 + 0x1p-52, 1, kTwo53},
  };
  for (const Row& row : rows) {
    EXPECT_TRUE(scaled(row.value, row.factor, row.divisor) == row.result) << &row - rows;
    EXPECT_TRUE(scaled(-row.value, row.factor, row.divisor) == -row.result) << &row - rows;
    EXPECT_TRUE(scaled(row.value, -row.factor, row.divisor) == -row.result) << &row - rows;
  }
}

TEST(ExactScaling, IsDoublesWhereThatIsExact) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 100'000; ++i) {
    const auto value = static_cast<std::int64_t>(random() >> (11 + random() % 50));  // 53 bits at most
    const double factor = std::ldexp(static_cast<double>(random()), -static_cast<int>(random() % 128));
    const double product = static_cast<double>(value) * factor;
    if (product >= 0x1p53) continue;
    ASSERT_TRUE(scaled(value, factor, 1) == static_cast<Int128>(product)) << value << " * " << factor;
  }
}

TEST(ExactScaling, LosesNothingAbove) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 100'000; ++i) {
    const std::uint64_t value = random() | std::uint64_t{1} << 60;
    const auto divisor = static_cast<std::uint32_t>(1 + random() % 0x7FFFFFFF);
    const int shift = static_cast<int>(random() % 8);
    const Int128 product = Int128{value} * divisor;
    ASSERT_TRUE(scaled(product, 1.0, divisor) == value);
    ASSERT_TRUE(scaled(product + divisor - 1, 1.0, divisor) == value);
    ASSERT_TRUE(scaled(product - 1, 1.0, divisor) == value - 1);
    ASSERT_TRUE(scaled(product, std::ldexp(1.0, -shift), divisor) == value >> shift);
    ASSERT_TRUE(scaled(value, divisor, divisor) == value);
  }
}

}  // namespace
}  // namespace ciranda::kernels
