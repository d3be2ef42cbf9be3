// Choosing the level, and that the choice changes no bit.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/kernels.hpp"
#include "kernels/reference.hpp"

namespace ciranda::kernels {
namespace {

using testing::Bytes;

TEST(SimdLevelTest, StartsAtTheBest) { EXPECT_EQ(active_simd_level(), best_simd_level()); }

TEST(SimdLevelTest, IsClampedToWhatTheCpuHas) {
  const testing::ScopedLevel scoped(SimdLevel::kAvx512);
  EXPECT_EQ(active_simd_level(), best_simd_level());
  set_simd_level(SimdLevel::kBaseline);
  EXPECT_EQ(active_simd_level(), SimdLevel::kBaseline);
}

TEST(SimdLevelTest, HasNames) {
  EXPECT_EQ(to_string(SimdLevel::kBaseline), "baseline");
  EXPECT_EQ(to_string(SimdLevel::kAvx2), "avx2");
  EXPECT_EQ(to_string(SimdLevel::kAvx512), "avx512");
}

TEST(SimdLevelTest, ReducesAnyBitPatternToTheSameBits) {
  constexpr std::size_t kCount = 20000;
  constexpr std::size_t kInputs = 6;
  for (const DataTypeInfo& type : kDataTypes) {
    const std::vector<Bytes> tensors = testing::make_inputs(type.dtype, kInputs, kCount, 3);
    std::vector<const std::byte*> inputs;
    for (const Bytes& tensor : tensors) inputs.push_back(tensor.data());
    for (const ReduceOpInfo& row : kReduceOps) {
      if (!accepts(row.op, type.dtype) || !row.is_elementwise) continue;
      Reduction reduction{.dtype = type.dtype, .op = row.op, .n_average = 6};
      if (accepts_factors(row.op, type.dtype)) {
        reduction.prescale = 1.1;
        reduction.postscale = 0.7;
      }
      std::vector<Bytes> results;
      for (const SimdLevel level : testing::levels()) {
        const testing::ScopedLevel scoped(level);
        results.emplace_back(kCount * type.n_bytes);
        kernels::reduce(reduction, inputs, results.back().data(), kCount);
        EXPECT_EQ(results.back(), results.front()) << testing::describe(reduction, kInputs) << to_string(level);
      }
    }
  }
}

}  // namespace
}  // namespace ciranda::kernels
