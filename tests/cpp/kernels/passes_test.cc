// How many passes over memory a reduction makes: each input is read once and the output written once, however many
// inputs there are, and whether or not factors or weights are applied on the way.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kernels/kernels.hpp"
#include "kernels/page_watch.hpp"
#include "kernels/reference.hpp"

namespace ciranda::kernels {
namespace {

using testing::PageWatch;

constexpr std::size_t kBytes = 1 << 18;

// A second pass must be seen, or the other tests show nothing.
TEST(PageWatchTest, CountsPasses) {
  PageWatch memory(kBytes);
  const auto go_through = [&] {
    for (std::size_t i = 0; i < kBytes; i += 64) memory.data()[i] = std::byte{1};
  };
  memory.start();
  EXPECT_EQ(memory.n_passes(), 0);
  memory.start();
  go_through();
  EXPECT_EQ(memory.n_passes(), 1);
  memory.start();
  go_through();
  go_through();
  EXPECT_EQ(memory.n_passes(), 2);
}

struct Case {
  std::size_t n;
  bool in_place;
};

void expect_one_pass(const Reduction& reduction, const Case& test) {
  SCOPED_TRACE(testing::describe(reduction, test.n) + (test.in_place ? " in place" : ""));
  std::vector<std::unique_ptr<PageWatch>> watches;
  for (std::size_t k = 0; k < test.n + (test.in_place ? 0 : 1); ++k) {
    watches.push_back(std::make_unique<PageWatch>(kBytes));
  }
  std::vector<const std::byte*> inputs;
  for (std::size_t k = 0; k < test.n; ++k) inputs.push_back(watches[k]->data());
  for (const auto& watch : watches) watch->start();
  kernels::reduce(reduction, inputs, watches.back()->data(), kBytes / size_of(reduction.dtype));
  for (const auto& watch : watches) EXPECT_EQ(watch->n_passes(), 1);
}

void expect_one_pass_in_all_cases(const Reduction& reduction) {
  // More than eight inputs are combined in several rounds, block by block.
  for (const Case& test : {Case{2, false}, Case{2, true}, Case{7, true}, Case{8, false}, Case{33, false}}) {
    for (const SimdLevel level : testing::levels()) {
      const testing::ScopedLevel scoped(level);
      expect_one_pass(reduction, test);
    }
  }
}

class PassesTest : public ::testing::TestWithParam<DataType> {};

TEST_P(PassesTest, FactorsCostNone) {
  expect_one_pass_in_all_cases({.dtype = GetParam()});
  expect_one_pass_in_all_cases({.dtype = GetParam(), .prescale = 0.5, .postscale = 3.0});
  expect_one_pass_in_all_cases({.dtype = GetParam(), .op = ReduceOp::kAverage, .prescale = 0.3, .n_average = 7});
}

TEST_P(PassesTest, WeightsCostNone) {
  const TypeClass type_class = info(GetParam()).type_class;
  if (type_class != TypeClass::kFloating && type_class != TypeClass::kComplex) return;
  for (const std::size_t n : {std::size_t{2}, std::size_t{8}, std::size_t{33}}) {
    const std::vector<double> weights(n, 0.3);
    expect_one_pass({.dtype = GetParam(), .postscale = 0.5, .weights = weights}, {n, true});
  }
}

// One rank alone, which scales but has nothing to combine.
TEST_P(PassesTest, ScalingAloneIsOnePass) {
  expect_one_pass({.dtype = GetParam(), .prescale = 0.5, .postscale = 3.0}, {1, true});
  expect_one_pass({.dtype = GetParam(), .prescale = 0.5, .postscale = 3.0}, {1, false});
}

INSTANTIATE_TEST_SUITE_P(DataTypes, PassesTest,
                         ::testing::Values(DataType::kInt32, DataType::kFloat16, DataType::kBFloat16,
                                           DataType::kFloat32, DataType::kFloat64, DataType::kComplex64),
                         [](const auto& dtype) { return std::string(to_string(dtype.param)); });

}  // namespace
}  // namespace ciranda::kernels
