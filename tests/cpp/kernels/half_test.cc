// The scalar 16-bit conversions against the definition of the formats, in double arithmetic.
#include "kernels/half.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/reference.hpp"

namespace ciranda::kernels {
namespace {

using testing::SmallFloat;

bool same_bits(float a, float b) { return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b); }

float float_from(const SmallFloat& format, std::uint16_t bits) {
  return format == testing::kFloat16 ? float_from_float16(bits) : float_from_bfloat16(bits);
}
std::uint16_t bits_from(const SmallFloat& format, float value) {
  return format == testing::kFloat16 ? float16_from_float(value) : bfloat16_from_float(value);
}

class HalfTest : public ::testing::TestWithParam<SmallFloat> {};

TEST_P(HalfTest, EveryValueWidensExactlyAndComesBack) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const double exact = testing::widened(GetParam(), bits);
    const float value = float_from(GetParam(), bits);
    if (std::isnan(exact)) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(value), kFloat32Nan) << i;
      ASSERT_EQ(bits_from(GetParam(), value), testing::canonical_nan(GetParam())) << i;
    } else {
      ASSERT_TRUE(same_bits(value, static_cast<float>(exact))) << i;
      ASSERT_EQ(bits_from(GetParam(), value), bits) << i;
    }
  }
}

// Between any two neighbours: the tie goes to the even one, anything beside it to the nearer one.
TEST_P(HalfTest, RoundsToNearestEvenBetweenAllNeighbours) {
  const auto infinity = static_cast<std::uint16_t>(testing::infinity(GetParam()));
  for (std::uint16_t low = 0; low + 1 < infinity; ++low) {
    const auto high = static_cast<std::uint16_t>(low + 1);
    const double a = testing::widened(GetParam(), low);
    const double b = testing::widened(GetParam(), high);
    const auto tie = static_cast<float>((a + b) / 2);
    if (static_cast<double>(tie) != (a + b) / 2) continue;  // the smallest bfloat16 neighbours have no float between
    const std::uint16_t even = (low & 1) == 0 ? low : high;
    ASSERT_EQ(bits_from(GetParam(), tie), even) << low;
    ASSERT_EQ(bits_from(GetParam(), std::nextafter(tie, 0.0F)), low) << low;
    ASSERT_EQ(bits_from(GetParam(), std::nextafter(tie, std::numeric_limits<float>::infinity())), high) << low;
    ASSERT_EQ(bits_from(GetParam(), -tie), even | 0x8000) << low;
  }
}

TEST_P(HalfTest, OverflowGoesToInfinity) {
  const auto infinity = static_cast<std::uint16_t>(testing::infinity(GetParam()));
  EXPECT_EQ(bits_from(GetParam(), std::numeric_limits<float>::max()), infinity);
  EXPECT_EQ(bits_from(GetParam(), std::numeric_limits<float>::infinity()), infinity);
  EXPECT_EQ(bits_from(GetParam(), -std::numeric_limits<float>::infinity()), infinity | 0x8000);
}

INSTANTIATE_TEST_SUITE_P(Formats, HalfTest, ::testing::Values(testing::kFloat16, testing::kBFloat16),
                         [](const auto& format) { return format.param == testing::kFloat16 ? "float16" : "bfloat16"; });

TEST(HalfTest, EdgeOfFloat16Range) {
  EXPECT_EQ(float16_from_float(65504.0F), 0x7BFF);
  EXPECT_EQ(float16_from_float(65519.996F), 0x7BFF);
  EXPECT_EQ(float16_from_float(65520.0F), 0x7C00);
  EXPECT_EQ(float16_from_float(0x1p-25F), 0x0000);
  EXPECT_EQ(float16_from_float(0x1.000002p-25F), 0x0001);
  EXPECT_EQ(float16_from_float(-0x1p-149F), 0x8000);
}

static_assert(float16_from_float(1.0F) == 0x3C00);
static_assert(float_from_bfloat16(0x3F80) == 1.0F);

}  // namespace
}  // namespace ciranda::kernels
