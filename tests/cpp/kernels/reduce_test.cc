// reduce() against the reference, bit for bit: every operator, element type, number of inputs, count, alignment and
// SIMD level, in place and not.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "kernels/kernels.hpp"
#include "kernels/reference.hpp"

namespace ciranda::kernels {
namespace {

using testing::Bytes;

constexpr std::array<std::size_t, 8> kInputCounts{1, 2, 3, 4, 5, 7, 8, 16};
constexpr std::array<std::size_t, 6> kCounts{0, 1, 3, 64, 1000, 1027};
constexpr std::byte kGuard{0xA5};

struct Layout {
  std::size_t offset_bytes = 0;  // from a 64-byte boundary; input k gets k bytes more
  int in_place = -1;             // the input that out is
};

// Tensors at chosen alignments, each between guard bytes.
class Arena {
 public:
  Arena(const std::vector<Bytes>& inputs, std::size_t n_bytes, const Layout& layout) : n_bytes_(n_bytes) {
    for (std::size_t k = 0; k <= inputs.size(); ++k) {  // the last one is out
      const std::size_t offset = layout.offset_bytes == 0 ? 64 : 64 + layout.offset_bytes + k;
      buffers_.emplace_back(n_bytes + 256, kGuard);
      const auto misaligned = reinterpret_cast<std::uintptr_t>(buffers_.back().data()) % 64;
      tensors_.push_back(buffers_.back().data() + (64 - misaligned) + offset);
      if (k < inputs.size()) std::copy_n(inputs[k].begin(), n_bytes, tensors_.back());
    }
    out_ = tensors_.back();
    tensors_.pop_back();
    if (layout.in_place >= 0) out_ = tensors_[static_cast<std::size_t>(layout.in_place)];
    inputs_.assign(tensors_.begin(), tensors_.end());
  }

  std::span<const std::byte* const> inputs() const { return inputs_; }
  std::byte* out() const { return out_; }
  Bytes result() const { return {out_, out_ + n_bytes_}; }
  bool guards_stand() const { return out_[-1] == kGuard && out_[n_bytes_] == kGuard; }

 private:
  std::size_t n_bytes_;
  std::vector<Bytes> buffers_;
  std::vector<std::byte*> tensors_;
  std::vector<const std::byte*> inputs_;
  std::byte* out_ = nullptr;
};

std::size_t first_difference(const Bytes& a, const Bytes& b, std::size_t element_bytes) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin()) / element_bytes;
}

void check(const Reduction& reduction, const std::vector<Bytes>& inputs, const Bytes& reference, std::size_t count,
           const Layout& layout) {
  const std::size_t n_bytes = count * size_of(reduction.dtype);
  const Arena arena(inputs, n_bytes, layout);
  kernels::reduce(reduction, arena.inputs(), arena.out(), count);
  const Bytes wanted(reference.begin(), reference.begin() + static_cast<std::ptrdiff_t>(n_bytes));
  const Bytes got = arena.result();
  ASSERT_TRUE(got == wanted) << "first difference at element "
                             << first_difference(got, wanted, size_of(reduction.dtype));
  ASSERT_TRUE(arena.guards_stand());
}

void check_layouts(const Reduction& reduction, std::size_t n, bool thorough) {
  const std::size_t most = kCounts.back();
  const std::vector<Bytes> inputs = testing::make_inputs(reduction.dtype, n, most, 7);
  const Bytes reference = testing::expected(reduction, inputs, most);
  const int last = static_cast<int>(n) - 1;
  for (const SimdLevel level : testing::levels()) {
    SCOPED_TRACE(testing::describe(reduction, n) + " " + std::string(to_string(level)));
    const testing::ScopedLevel scoped(level);
    if (!thorough) {
      check(reduction, inputs, reference, most, {.offset_bytes = 1, .in_place = last});
    } else {
      for (const std::size_t count : kCounts) {
        check(reduction, inputs, reference, count, {});
        check(reduction, inputs, reference, count, {.offset_bytes = 1});
        check(reduction, inputs, reference, count, {.in_place = 0});
        check(reduction, inputs, reference, count, {.offset_bytes = 3, .in_place = last});
      }
    }
    if (::testing::Test::HasFatalFailure()) return;
  }
}

class ReduceTest : public ::testing::TestWithParam<DataType> {
 protected:
  template <class Function>
  void for_each_op_and_n(const Function& function) {
    for (const ReduceOpInfo& row : kReduceOps) {
      if (!accepts(row.op, GetParam()) || !row.is_elementwise) continue;
      for (const std::size_t n : kInputCounts) {
        function(row.op, n);
        if (HasFatalFailure()) return;
      }
    }
  }
};

TEST_P(ReduceTest, MatchesTheReferenceForEveryOpCountAndLayout) {
  for_each_op_and_n([](ReduceOp op, std::size_t n) {
    check_layouts({.dtype = GetParam(), .op = op, .n_average = static_cast<int>(n)}, n, true);
  });
}

TEST_P(ReduceTest, AppliesFactors) {
  constexpr std::array<std::array<double, 2>, 5> kFactors{
      {{0.5, 1.0}, {1.0, 3.0}, {1.7, 0.3}, {-2.5, 1.0}, {1e4, -7.0}}};
  for (const auto& factors : kFactors) {
    const double prescale = factors[0];
    const double postscale = factors[1];
    for_each_op_and_n([&](ReduceOp op, std::size_t n) {
      if (!accepts_factors(op, GetParam())) return;
      check_layouts({.dtype = GetParam(), .op = op, .prescale = prescale, .postscale = postscale, .n_average = 3}, n,
                    false);
    });
  }
}

TEST_P(ReduceTest, AppliesWeights) {
  const TypeClass type_class = info(GetParam()).type_class;
  if (type_class != TypeClass::kFloating && type_class != TypeClass::kComplex) return;
  std::vector<double> weights;
  for (std::size_t k = 0; k < kInputCounts.back(); ++k) weights.push_back(0.37 * static_cast<double>(k % 5));
  for_each_op_and_n([&](ReduceOp op, std::size_t n) {
    if (op != ReduceOp::kSum) return;
    const std::vector<double> first(weights.begin(), weights.begin() + static_cast<std::ptrdiff_t>(n));
    check_layouts({.dtype = GetParam(), .op = op, .weights = first}, n, false);
    check_layouts({.dtype = GetParam(), .op = op, .prescale = 1.7, .postscale = 0.3, .weights = first}, n, true);
  });
}

// A postscale that cancels the divisor leaves it an average: sums that do not wrap, saturated.
TEST_P(ReduceTest, AveragesWithPostscaleEqualToTheDivisor) {
  if (!accepts(ReduceOp::kAverage, GetParam())) return;
  check_layouts({.dtype = GetParam(), .op = ReduceOp::kAverage, .postscale = 4.0, .n_average = 4}, 4, false);
  check_layouts({.dtype = GetParam(), .op = ReduceOp::kAverage, .n_average = 2}, 7, false);
}

// As if each call had been made with one element: no result depends on where a range is cut.
TEST_P(ReduceTest, DoesNotDependOnHowARangeIsSplit) {
  constexpr std::size_t kCount = 5000;
  const std::size_t element_bytes = size_of(GetParam());
  const ReduceOp op = accepts(ReduceOp::kProduct, GetParam()) ? ReduceOp::kProduct : ReduceOp::kMax;
  for (const std::size_t n : {std::size_t{2}, std::size_t{7}, std::size_t{33}}) {
    const std::vector<Bytes> inputs = testing::make_inputs(GetParam(), n, kCount, 11);
    const Reduction reduction{.dtype = GetParam(), .op = op};
    const Bytes reference = testing::expected(reduction, inputs, kCount);
    for (const std::size_t step : {std::size_t{1}, std::size_t{37}, std::size_t{1024}, kCount}) {
      Bytes out(kCount * element_bytes);
      for (std::size_t at = 0; at < kCount; at += step) {
        std::vector<const std::byte*> pointers;
        for (const Bytes& input : inputs) pointers.push_back(input.data() + at * element_bytes);
        kernels::reduce(reduction, pointers, out.data() + at * element_bytes, std::min(step, kCount - at));
      }
      ASSERT_EQ(out, reference) << testing::describe(reduction, n) << " step " << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DataTypes, ReduceTest, ::testing::ValuesIn([] {
                           std::vector<DataType> all;
                           for (const DataTypeInfo& row : kDataTypes) all.push_back(row.dtype);
                           return all;
                         }()),
                         [](const auto& dtype) { return std::string(to_string(dtype.param)); });

// The order itself, by values that tell every order apart: 1 is lost against 2^24 unless it meets another 1 first.
TEST(ReduceOrderTest, CombinesInTheLeftCompleteTree) {
  const auto sum = [](const std::vector<float>& x) {
    std::vector<const std::byte*> inputs;
    for (const float& value : x) inputs.push_back(reinterpret_cast<const std::byte*>(&value));
    float out = 0;
    kernels::reduce({}, inputs, reinterpret_cast<std::byte*>(&out), 1);
    return out;
  };
  const float big = 0x1p24F;
  EXPECT_EQ(sum({big, 1, 1}), big);                     // (x0 x1) x2
  EXPECT_EQ(sum({big, 0, 1, 1}), big + 2);              // (x0 x1) (x2 x3)
  EXPECT_EQ(sum({big, 0, 0, 0, 1, 1}), big + 2);        // ((x0 x1) (x2 x3)) (x4 x5)
  EXPECT_EQ(sum({big, 0, 0, 0, 1, 0, 1}), big + 2);     // ((x0 x1) (x2 x3)) ((x4 x5) x6)
  EXPECT_EQ(sum({big, 0, 1, 0, 1, 0, 1, 0}), big + 2);  // big + 1 is lost, then + 2
}

}  // namespace
}  // namespace ciranda::kernels
