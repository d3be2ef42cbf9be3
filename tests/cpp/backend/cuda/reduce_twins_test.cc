// The kernels' reductions against kernels::reduce, bit for bit: every operator, element type, number of inputs, count,
// alignment and factor, in place and not.
#include <array>
#include <bit>
#include <cmath>
#include <optional>
#include <random>
#include <span>
#include <string>

#include "backend/cuda/twin_launch.hpp"
#include "kernels/half.hpp"
#include "kernels/kernels.hpp"
#include "kernels/reference.hpp"

namespace ciranda::cuda {
namespace {

using testing::Bytes;
using testing::Shape;
using testing::Tensor;

struct Case {
  Reduction reduction;
  std::size_t misaligned_by = 0;      // of `out`
  std::size_t inputs_further_by = 0;  // of input k: so many bytes times k + 1
  std::optional<std::size_t> in_place = std::nullopt;
  Shape shape = {};
};

std::string describe(const Case& test, std::size_t n, std::size_t count) {
  return std::string(to_string(test.reduction.op)) + " " + std::string(to_string(test.reduction.dtype)) +
         " n=" + std::to_string(n) + " count=" + std::to_string(count) +
         " prescale=" + std::to_string(test.reduction.prescale) +
         " postscale=" + std::to_string(test.reduction.postscale) +
         " n_average=" + std::to_string(test.reduction.n_average) + " misaligned by " +
         std::to_string(test.misaligned_by) + ", " + std::to_string(test.inputs_further_by);
}

Bytes reduced_by_host(const Case& test, const std::vector<Bytes>& inputs, std::size_t count) {
  std::vector<const std::byte*> pointers;
  for (const Bytes& input : inputs) pointers.push_back(input.data());
  Bytes out(count * size_of(test.reduction.dtype));
  kernels::reduce(test.reduction, pointers, out.data(), count);
  return out;
}

void check(const Case& test, const std::vector<Bytes>& inputs, std::size_t count) {
  const std::size_t n_bytes = count * size_of(test.reduction.dtype);
  std::vector<Tensor> tensors;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const std::size_t further = (k + 1) * test.inputs_further_by;
    tensors.emplace_back(Bytes(inputs[k].begin(), inputs[k].begin() + static_cast<std::ptrdiff_t>(n_bytes)),
                         (test.misaligned_by + further) % 16);
  }
  tensors.emplace_back(n_bytes, test.misaligned_by);
  std::vector<const std::byte*> pointers;
  for (std::size_t k = 0; k < inputs.size(); ++k) pointers.push_back(tensors[k].data());
  Tensor& out = tensors[test.in_place.value_or(inputs.size())];
  const ReduceLaunch made = make_reduce(test.reduction, pointers, out.data(), count);
  testing::launch(made.kernel, made.arguments, test.shape);
  const Bytes wanted = reduced_by_host(test, inputs, count);
  const Bytes got = out.content();
  const auto differs = std::mismatch(got.begin(), got.end(), wanted.begin()).first - got.begin();
  ASSERT_TRUE(got == wanted) << describe(test, inputs.size(), count) << ": first at element "
                             << static_cast<std::size_t>(differs) / size_of(test.reduction.dtype);
  ASSERT_TRUE(out.guards_stand()) << describe(test, inputs.size(), count);
}

constexpr std::array<std::size_t, 12> kInputCounts{1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33, 64};
constexpr std::array<std::size_t, 5> kCounts{0, 1, 7, 64, 1027};

class ReduceTwins : public ::testing::TestWithParam<DataType> {
 protected:
  template <class Function>
  void for_each_op(const Function& function) {
    for (const ReduceOpInfo& row : kReduceOps) {
      if (!accepts(row.op, GetParam()) || !row.is_elementwise) continue;
      function(row.op);
      if (HasFatalFailure()) return;
    }
  }
  // With inputs made once for each number of them.
  template <class Function>
  void for_each_op_and_n(const Function& function) {
    for (const std::size_t n : kInputCounts) {
      const std::vector<Bytes> inputs = kernels::testing::make_inputs(GetParam(), n, kCounts.back(), 7);
      for_each_op([&](ReduceOp op) { function(op, inputs); });
      if (HasFatalFailure()) return;
    }
  }
};

TEST_P(ReduceTwins, MatchTheHostForEveryOpInputAndCount) {
  for_each_op_and_n([](ReduceOp op, const std::vector<Bytes>& inputs) {
    for (const std::size_t count : kCounts) {
      const Reduction reduction{.dtype = GetParam(), .op = op, .n_average = static_cast<int>(inputs.size())};
      check({reduction}, inputs, count);
      check({.reduction = reduction, .inputs_further_by = 1}, inputs, count);
    }
  });
}

TEST_P(ReduceTwins, MatchTheHostForEveryAlignment) {
  const std::vector<Bytes> inputs = kernels::testing::make_inputs(GetParam(), 3, 301, 8);
  for_each_op([&](ReduceOp op) {
    for (std::size_t misaligned_by = 0; misaligned_by < 16; ++misaligned_by) {
      for (const std::size_t further_by : {0U, 1U, 2U, 4U, 5U, 8U}) {
        check({.reduction = {.dtype = GetParam(), .op = op},
               .misaligned_by = misaligned_by,
               .inputs_further_by = further_by},
              inputs, 301);
      }
    }
  });
}

TEST_P(ReduceTwins, MatchTheHostForEveryFactor) {
  constexpr std::array<std::array<double, 2>, 9> kFactors{{{0.5, 1.0},
                                                           {1.0, 3.0},
                                                           {1.7, 0.3},
                                                           {-2.5, 1.0},
                                                           {1e4, -7.0},
                                                           {1e-320, 1e300},
                                                           {0.0, 1.0},
                                                           {1.0 / 3, 3.0},
                                                           {0x1.fffffffffffffp0, 0x1p-60}}};
  for_each_op_and_n([&](ReduceOp op, const std::vector<Bytes>& inputs) {
    if (!accepts_factors(op, GetParam())) return;
    for (const auto& factors : kFactors) {
      for (const int n_average : {1, 3, 4}) {
        if (op != ReduceOp::kAverage && n_average != 1) continue;
        check({{GetParam(), op, factors[0], factors[1], n_average}}, inputs, 131);
      }
    }
  });
}

TEST_P(ReduceTwins, MatchTheHostForWeights) {
  const TypeClass type_class = info(GetParam()).type_class;
  if (type_class != TypeClass::kFloating && type_class != TypeClass::kComplex) return;
  std::vector<double> weights;
  for (std::size_t k = 0; k < kMostInputs; ++k) weights.push_back(0.37 * static_cast<double>(k % 5));
  for_each_op_and_n([&](ReduceOp op, const std::vector<Bytes>& inputs) {
    if (op != ReduceOp::kSum) return;
    const std::vector<double> first(weights.begin(), weights.begin() + static_cast<std::ptrdiff_t>(inputs.size()));
    check({{.dtype = GetParam(), .op = op, .weights = first}}, inputs, 131);
    check({{.dtype = GetParam(), .op = op, .prescale = 1.7, .postscale = 0.3, .weights = first}}, inputs, 131);
  });
}

TEST_P(ReduceTwins, MatchTheHostInPlace) {
  const std::vector<Bytes> inputs = kernels::testing::make_inputs(GetParam(), 5, 1027, 9);
  for_each_op([&](ReduceOp op) {
    for (const std::size_t in_place : {0U, 4U}) {
      check({.reduction = {.dtype = GetParam(), .op = op}, .in_place = in_place}, inputs, 1027);
      check({.reduction = {.dtype = GetParam(), .op = op},
             .misaligned_by = 2,
             .inputs_further_by = 3,
             .in_place = in_place},
            inputs, 1027);
    }
  });
}

TEST_P(ReduceTwins, DoNotDependOnTheShapeOfTheLaunch) {
  const std::vector<Bytes> inputs = kernels::testing::make_inputs(GetParam(), 7, 1027, 10);
  for_each_op([&](ReduceOp op) {
    for (const Shape& shape : {Shape{1, 1}, Shape{1, 256}, Shape{7, 5}, Shape{64, 32}, Shape{200, 256}}) {
      check({.reduction = {.dtype = GetParam(), .op = op}, .shape = shape}, inputs, 1027);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(DataTypes, ReduceTwins, ::testing::ValuesIn([] {
                           std::vector<DataType> all;
                           for (const DataTypeInfo& row : kDataTypes) all.push_back(row.dtype);
                           return all;
                         }()),
                         [](const auto& dtype) { return std::string(to_string(dtype.param)); });

std::uint16_t rounded(DataType dtype, float value) {
  return dtype == DataType::kFloat16 ? kernels::float16_from_float(value) : kernels::bfloat16_from_float(value);
}
float widened(DataType dtype, std::uint16_t bits) {
  return dtype == DataType::kFloat16 ? kernels::float_from_float16(bits) : kernels::float_from_bfloat16(bits);
}

// Each of the 65,536 values with this other, and this other with each.
void check_all_with(DataType dtype, std::uint16_t other) {
  constexpr std::size_t kValues = 65536;
  std::vector<std::uint16_t> values(kValues);
  const std::vector<std::uint16_t> others(kValues, other);
  std::vector<std::uint16_t> out(kValues);
  for (std::size_t i = 0; i < kValues; ++i) values[i] = static_cast<std::uint16_t>(i);
  const auto* first = reinterpret_cast<const std::byte*>(values.data());
  const auto* second = reinterpret_cast<const std::byte*>(others.data());
  for (const auto& inputs : {std::array{first, second}, std::array{second, first}}) {
    const ReduceLaunch made = make_reduce({.dtype = dtype}, inputs, reinterpret_cast<std::byte*>(out.data()), kValues);
    testing::launch(made.kernel, made.arguments, {1, 1});
    for (std::size_t i = 0; i < kValues; ++i) {
      const std::uint16_t wanted = rounded(dtype, widened(dtype, values[i]) + widened(dtype, other));
      ASSERT_EQ(out[i], wanted) << to_string(dtype) << " " << i << " + " << other;
    }
  }
}

TEST(SixteenBitTwins, SumEveryValueWithOthersAndRoundOnce) {
  std::mt19937 random(3);
  for (const DataType dtype : {DataType::kFloat16, DataType::kBFloat16}) {
    for (int i = 0; i < 100; ++i) {
      check_all_with(dtype, static_cast<std::uint16_t>(random()));
      if (HasFatalFailure()) return;
    }
    // Zeros, subnormals, 1, the largest, infinities, NaNs.
    constexpr std::array<std::uint16_t, 20> kSpecial{0x0000, 0x8000, 0x0001, 0x8001, 0x007F, 0x0080, 0x03FF,
                                                     0x0400, 0x3C00, 0x3F80, 0x7BFF, 0x7F7F, 0x7C00, 0xFC00,
                                                     0x7F80, 0xFF80, 0x7C01, 0xFE00, 0x7F81, 0xFFFF};
    for (const std::uint16_t special : kSpecial) {
      check_all_with(dtype, special);
      if (HasFatalFailure()) return;
    }
  }
}

// Any bits of a factor and of an integer, beyond where double is exact, with and without a divisor.
TEST(ScaledIntegerTwins, MatchTheHostForAnyFactor) {
  std::mt19937_64 random(5);
  for (const DataTypeInfo& type : kDataTypes) {
    if (!kIntegers.contains(type.type_class)) continue;
    const std::vector<Bytes> inputs = kernels::testing::make_inputs(type.dtype, 5, 64, 11);
    for (int i = 0; i < 500; ++i) {
      const auto factor = [&] {
        const auto any = std::bit_cast<double>(random());
        const double near =
            std::ldexp(1.0 + static_cast<double>(random() % 1000) / 999, static_cast<int>(random() % 130) - 65);
        return i % 2 == 0 && std::isfinite(any) ? any : near;
      };
      const int n_average = 1 + static_cast<int>(random() % (i % 3 == 0 ? 2147483647 : 9));
      const double prescale = i % 4 == 0 ? 1.0 : factor();
      const double postscale = i % 5 == 0 ? 1.0 : factor();
      check({{type.dtype, ReduceOp::kAverage, prescale, postscale, n_average}}, inputs, 64);
      if (HasFatalFailure()) return;
    }
  }
}

// 2^52 + 1/2 + 2^-14, of which the first 64 bits are those of a tie.
TEST(ScaledIntegerTwins, SeeBitsBehindATie) {
  const std::uint64_t half = std::uint64_t{1} << 63;
  std::vector<Bytes> inputs;
  for (int k = 0; k < 8; ++k) {
    const std::uint64_t value = k == 3 ? half + 8193 : half;
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    inputs.emplace_back(bytes, bytes + sizeof value);
  }
  check({{.dtype = DataType::kUInt64, .op = ReduceOp::kAverage, .postscale = 2.0, .n_average = 1 << 15}}, inputs, 1);
}

}  // namespace
}  // namespace ciranda::cuda
