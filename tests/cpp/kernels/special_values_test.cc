// NaN, infinity, signed zero, subnormals and the thread's floating-point environment.
#include <gtest/gtest.h>

#include <bit>
#include <cfenv>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/half.hpp"
#include "kernels/kernels.hpp"
#include "kernels/reference.hpp"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace ciranda::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The bits of op over the given values, at one level; in many lanes at once, all of which must agree.
std::uint32_t reduced_bits(ReduceOp op, const std::vector<float>& x, double prescale = 1.0) {
  constexpr std::size_t kCount = 67;  // whole vectors and a tail at every level
  std::vector<std::vector<float>> tensors;
  std::vector<const std::byte*> inputs;
  for (const float value : x) tensors.emplace_back(kCount, value);
  for (const auto& tensor : tensors) inputs.push_back(reinterpret_cast<const std::byte*>(tensor.data()));
  std::vector<std::uint32_t> out(kCount);
  kernels::reduce({.op = op, .prescale = prescale}, inputs, reinterpret_cast<std::byte*>(out.data()), kCount);
  for (const std::uint32_t bits : out) EXPECT_EQ(bits, out[0]);
  return out[0];
}

std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }

class SpecialValuesTest : public ::testing::TestWithParam<SimdLevel> {
  testing::ScopedLevel scoped_{GetParam()};
};

TEST_P(SpecialValuesTest, MinAndMaxPropagateNanFromEitherSide) {
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kSum, ReduceOp::kProduct}) {
    for (const float other : {0.0F, -0.0F, 1.0F, -1.0F, kInf, -kInf, kNan}) {
      for (const std::uint32_t nan : {0x7FC00000U, 0xFFC00000U, 0x7F800001U, 0xFFFFFFFFU, 0x7FD55555U}) {
        const auto value = std::bit_cast<float>(nan);
        EXPECT_EQ(reduced_bits(op, {value, other}), kFloat32Nan) << to_string(op) << " " << other;
        EXPECT_EQ(reduced_bits(op, {other, value}), kFloat32Nan) << to_string(op) << " " << other;
        EXPECT_EQ(reduced_bits(op, {other, other, other, other, value, other}), kFloat32Nan) << to_string(op);
      }
    }
  }
}

TEST_P(SpecialValuesTest, DisjointNanPayloadsStayNanUnderMax) {
  const auto a = std::bit_cast<float>(0x7F800001U);
  const auto b = std::bit_cast<float>(0x7F800002U);
  EXPECT_EQ(reduced_bits(ReduceOp::kMax, {a, b}), kFloat32Nan);
  EXPECT_EQ(reduced_bits(ReduceOp::kMin, {a, b}), kFloat32Nan);
}

TEST_P(SpecialValuesTest, NegativeZeroIsLessThanPositiveZero) {
  EXPECT_EQ(reduced_bits(ReduceOp::kMin, {0.0F, -0.0F}), bits(-0.0F));
  EXPECT_EQ(reduced_bits(ReduceOp::kMin, {-0.0F, 0.0F}), bits(-0.0F));
  EXPECT_EQ(reduced_bits(ReduceOp::kMax, {0.0F, -0.0F}), bits(0.0F));
  EXPECT_EQ(reduced_bits(ReduceOp::kMax, {-0.0F, 0.0F}), bits(0.0F));
  EXPECT_EQ(reduced_bits(ReduceOp::kMax, {-0.0F, -0.0F, -0.0F}), bits(-0.0F));
  EXPECT_EQ(reduced_bits(ReduceOp::kSum, {-0.0F, -0.0F}), bits(-0.0F));
  EXPECT_EQ(reduced_bits(ReduceOp::kSum, {-0.0F, 0.0F}), bits(0.0F));
}

TEST_P(SpecialValuesTest, InfinitiesFollowTheArithmetic) {
  EXPECT_EQ(reduced_bits(ReduceOp::kSum, {kInf, 1.0F}), bits(kInf));
  EXPECT_EQ(reduced_bits(ReduceOp::kSum, {kInf, -kInf}), kFloat32Nan);  // x86 itself would give a negative NaN
  EXPECT_EQ(reduced_bits(ReduceOp::kProduct, {kInf, 0.0F}), kFloat32Nan);
  EXPECT_EQ(reduced_bits(ReduceOp::kMin, {kInf, -kInf}), bits(-kInf));
  EXPECT_EQ(reduced_bits(ReduceOp::kMax, {kInf, -kInf, 3.0F}), bits(kInf));
}

TEST_P(SpecialValuesTest, SubnormalsAreKept) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(reduced_bits(ReduceOp::kSum, {tiny, tiny}), 2U);
  EXPECT_EQ(reduced_bits(ReduceOp::kSum, {tiny, tiny}, 0.5), 0U);  // each half rounds to even, zero
  EXPECT_EQ(reduced_bits(ReduceOp::kMin, {tiny, 1.0F}), 1U);
}

// Every half through the level's own conversions both ways, beside a zero, so that the conversion is all there is.
TEST_P(SpecialValuesTest, EverySixteenBitValueSurvivesASumWithZero) {
  for (const DataType dtype : {DataType::kFloat16, DataType::kBFloat16}) {
    const testing::SmallFloat format = dtype == DataType::kFloat16 ? testing::kFloat16 : testing::kBFloat16;
    std::vector<std::uint16_t> values(65536);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint16_t>(i);
    const std::vector<std::uint16_t> zeros(values.size(), 0x8000);  // x + -0 == x, for -0 too
    std::vector<std::uint16_t> out(values.size());
    const std::byte* inputs[] = {reinterpret_cast<const std::byte*>(values.data()),
                                 reinterpret_cast<const std::byte*>(zeros.data())};
    kernels::reduce({.dtype = dtype}, inputs, reinterpret_cast<std::byte*>(out.data()), values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const bool is_nan = (values[i] & 0x7FFF) > testing::infinity(format);
      ASSERT_EQ(out[i], is_nan ? testing::canonical_nan(format) : values[i]) << to_string(dtype) << " " << i;
    }
  }
}

// Sums of two halves that fall between two halves, over many magnitudes, against the scalar conversions.
TEST_P(SpecialValuesTest, SixteenBitSumsRoundOnceToNearestEven) {
  for (const DataType dtype : {DataType::kFloat16, DataType::kBFloat16}) {
    const bool is_half = dtype == DataType::kFloat16;
    for (std::uint32_t shift = 1; shift < 0x4000; shift += 61) {
      std::vector<std::uint16_t> a, b, wanted, out(4096);
      for (std::uint32_t i = 0; i < 4096; ++i) {
        a.push_back(static_cast<std::uint16_t>(i * 16 + shift % 16));
        b.push_back(static_cast<std::uint16_t>(i * 16 + shift));
        const float x = is_half ? float_from_float16(a[i]) : float_from_bfloat16(a[i]);
        const float y = is_half ? float_from_float16(b[i]) : float_from_bfloat16(b[i]);
        wanted.push_back(is_half ? float16_from_float(x + y) : bfloat16_from_float(x + y));
      }
      const std::byte* inputs[] = {reinterpret_cast<const std::byte*>(a.data()),
                                   reinterpret_cast<const std::byte*>(b.data())};
      kernels::reduce({.dtype = dtype}, inputs, reinterpret_cast<std::byte*>(out.data()), out.size());
      ASSERT_EQ(out, wanted) << to_string(dtype) << " " << shift;
    }
  }
}

// What does not fit is infinite, unless it is divided before (or, of 16-bit types, while it is still float32).
TEST_P(SpecialValuesTest, DividingFirstKeepsSumsFromOverflowing) {
  constexpr std::size_t kCount = 67;
  const std::vector<std::uint16_t> large(kCount, float16_from_float(60000));
  const std::vector<const std::byte*> inputs(4, reinterpret_cast<const std::byte*>(large.data()));
  const auto sum = [&](const Reduction& reduction) {
    std::vector<std::uint16_t> out(kCount);
    kernels::reduce(reduction, inputs, reinterpret_cast<std::byte*>(out.data()), kCount);
    for (const std::uint16_t value : out) EXPECT_EQ(value, out[0]);
    return float_from_float16(out[0]);
  };
  EXPECT_EQ(sum({.dtype = DataType::kFloat16}), kInf);
  EXPECT_EQ(sum({.dtype = DataType::kFloat16, .prescale = 0.25}), 60000);
  EXPECT_EQ(sum({.dtype = DataType::kFloat16, .postscale = 0.25}), 60000);
  EXPECT_EQ(sum({.dtype = DataType::kFloat16, .op = ReduceOp::kAverage, .n_average = 4}), 60000);
  const std::vector<float> four(4, 0x1p127F);
  EXPECT_EQ(reduced_bits(ReduceOp::kSum, four), bits(kInf));
  EXPECT_EQ(reduced_bits(ReduceOp::kSum, four, 0.25), bits(0x1p127F));
}

TEST_P(SpecialValuesTest, TheThreadsRoundingModeChangesNothing) {
  const std::uint32_t nearest = reduced_bits(ReduceOp::kSum, {1.0F, 0x1.8p-24F});
  const int before = std::fegetround();
  ASSERT_EQ(std::fesetround(FE_DOWNWARD), 0);
  const std::uint32_t downward = reduced_bits(ReduceOp::kSum, {1.0F, 0x1.8p-24F});
  EXPECT_EQ(std::fegetround(), FE_DOWNWARD);  // and the thread keeps it
  std::fesetround(before);
  EXPECT_EQ(downward, nearest);
}

#if defined(__x86_64__) || defined(__aarch64__)
// As torch.set_flush_denormal(True) makes a thread.
class FlushedSubnormals {
 public:
  FlushedSubnormals() : before_(control()) { set_control(before_ | kFlushes); }
  ~FlushedSubnormals() { set_control(before_); }
  FlushedSubnormals(const FlushedSubnormals&) = delete;
  FlushedSubnormals& operator=(const FlushedSubnormals&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr std::uint64_t kFlushes = 0x8040;  // results, and operands
  static std::uint64_t control() { return _mm_getcsr(); }
  static void set_control(std::uint64_t bits) { _mm_setcsr(static_cast<unsigned>(bits)); }
#else
  static constexpr std::uint64_t kFlushes = 1U << 24;
  static std::uint64_t control() {
    std::uint64_t bits = 0;
    asm volatile("mrs %0, fpcr" : "=r"(bits));
    return bits;
  }
  static void set_control(std::uint64_t bits) { asm volatile("msr fpcr, %0" : : "r"(bits) : "memory"); }
#endif
  std::uint64_t before_;
};

TEST_P(SpecialValuesTest, TheThreadsFlushingOfSubnormalsChangesNothing) {
  constexpr float kSmall = 0x1p-149F;
  const FlushedSubnormals flushed;
  volatile float small = kSmall;
  small = small + small;
  EXPECT_EQ(bits(small), 0U) << "the thread flushes none";
  EXPECT_EQ(reduced_bits(ReduceOp::kSum, {kSmall, kSmall}), bits(2 * kSmall));
  small = kSmall;
  small = small + small;
  EXPECT_EQ(bits(small), 0U) << "the thread did not keep its mode";
}
#endif

INSTANTIATE_TEST_SUITE_P(Levels, SpecialValuesTest, ::testing::ValuesIn(testing::levels()),
                         [](const auto& level) { return std::string(to_string(level.param)); });

}  // namespace
}  // namespace ciranda::kernels
