// Adasum against its definition in double arithmetic, with ranks that are objects and plans carried out by copying.
#include "collective/adasum.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>

#include "fuse/piece_list.hpp"
#include "kernels/half.hpp"

namespace ciranda {
namespace {

using Bytes = std::vector<std::byte>;
using Vector = std::vector<double>;

double value_at(DataType dtype, const Bytes& bytes, std::size_t i) {
  const auto load = [&](auto value) {
    std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
    return value;
  };
  switch (dtype) {
    case DataType::kFloat16: return static_cast<double>(kernels::float_from_float16(load(std::uint16_t{})));
    case DataType::kBFloat16: return static_cast<double>(kernels::float_from_bfloat16(load(std::uint16_t{})));
    case DataType::kFloat32: return static_cast<double>(load(float{}));
    default: return load(double{});
  }
}

Bytes bytes_of(DataType dtype, const Vector& values) {
  Bytes bytes(values.size() * size_of(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto store = [&](auto value) { std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value); };
    const auto single = static_cast<float>(values[i]);
    switch (dtype) {
      case DataType::kFloat16: store(kernels::float16_from_float(single)); break;
      case DataType::kBFloat16: store(kernels::bfloat16_from_float(single)); break;
      case DataType::kFloat32: store(single); break;
      default: store(values[i]);
    }
  }
  return bytes;
}

Vector values_of(DataType dtype, const Bytes& bytes) {
  Vector values(bytes.size() / size_of(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value_at(dtype, bytes, i);
  return values;
}

double dot(const Vector& a, const Vector& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }

Vector pair_of(const Vector& a, const Vector& b) {
  const double ab = dot(a, b);
  const double of_a = dot(a, a) == 0 ? 1 : 1 - ab / (2 * dot(a, a));
  const double of_b = dot(b, b) == 0 ? 1 : 1 - ab / (2 * dot(b, b));
  Vector sum(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) sum[i] = of_a * a[i] + of_b * b[i];
  return sum;
}

Vector definition(const std::vector<Vector>& x, std::size_t begin, std::size_t end) {
  if (end - begin == 1) return x[begin];
  const std::size_t left = std::bit_floor(end - begin - 1);
  return pair_of(definition(x, begin, begin + left), definition(x, begin + left, end));
}

// tensors[rank][tensor]. An empty list for a rank that does not contribute.
using Tensors = std::vector<std::vector<Bytes>>;

// What every plan promises: the same kind and length on all ranks, and nothing longer than that.
void carry_out(const std::vector<Plan>& plans) {
  for (std::size_t from = 0; from < plans.size(); ++from) {
    ASSERT_EQ(plans[from].collective, plans[0].collective);
    ASSERT_EQ(plans[from].n_bytes, plans[0].n_bytes);
    for (std::size_t to = 0; to < plans.size(); ++to) {
      const OutputPieces& output = plans[to].output_by_rank[from];
      if (!plans[from].is_receiver(static_cast<int>(to))) {
        ASSERT_EQ(output.n_bytes(), 0U);
        continue;
      }
      const InputPieces& input = plans[from].input_for(static_cast<int>(to));
      ASSERT_EQ(input.n_bytes(), output.n_bytes());
      ASSERT_LE(input.n_bytes(), plans[0].n_bytes);
      Bytes bytes(input.n_bytes());
      gather(input, 0, bytes);
      scatter(output, 0, bytes);
    }
  }
}

// In place. Ranks with an empty list look on.
void run(Tensors& tensors, AdasumOptions options) {
  std::vector<std::unique_ptr<Adasum>> ranks;
  options.n_ranks = static_cast<int>(tensors.size());
  options.contributors.clear();
  std::size_t n_tensors = 0;
  for (std::size_t rank = 0; rank < tensors.size(); ++rank) {
    if (tensors[rank].empty()) continue;
    options.contributors.push_back(static_cast<int>(rank));
    n_tensors = rank;
  }
  const std::vector<Bytes> shapes = tensors[n_tensors];
  for (std::size_t rank = 0; rank < tensors.size(); ++rank) {
    std::vector<AdasumTensor> memory;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      std::byte* data = tensors[rank].empty() ? nullptr : tensors[rank][i].data();
      memory.push_back({data, data, shapes[i].size() / size_of(options.dtype)});
    }
    options.rank = static_cast<int>(rank);
    ranks.push_back(make_adasum(options, memory));
  }
  for (;;) {
    std::vector<Plan> plans;
    for (const auto& rank : ranks) {
      if (std::optional<Plan> plan = rank->next()) plans.push_back(std::move(*plan));
    }
    if (plans.empty()) return;
    ASSERT_EQ(plans.size(), ranks.size()) << "some rank has nothing more to do";
    carry_out(plans);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

Tensors random_tensors(DataType dtype, std::size_t n_ranks, const std::vector<std::size_t>& counts) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> uniform(-1, 1);
  Tensors tensors(n_ranks);
  for (auto& of_rank : tensors) {
    for (const std::size_t count : counts) {
      Vector values(count);
      for (double& value : values) value = 0.5 + uniform(random);  // neither parallel nor orthogonal
      of_rank.push_back(bytes_of(dtype, values));
    }
  }
  return tensors;
}

Vector expected(DataType dtype, const Tensors& tensors, std::size_t tensor) {
  std::vector<Vector> x;
  for (const auto& of_rank : tensors) {
    if (!of_rank.empty()) x.push_back(values_of(dtype, of_rank[tensor]));
  }
  return definition(x, 0, x.size());
}

const std::vector<std::size_t> kCounts{5, 0, 1, 20000, 8192, 100};

class AdasumTest : public ::testing::TestWithParam<DataType> {
 protected:
  // Relative to the largest element: of the arithmetic, and of what is stored.
  static double tolerance() {
    switch (GetParam()) {
      case DataType::kFloat16: return 0x1p-11;
      case DataType::kBFloat16: return 0x1p-8;
      case DataType::kFloat32: return 0x1p-20;
      default: return 0x1p-44;
    }
  }
  static void expect_near(const Vector& actual, const Vector& wanted, const std::string& what) {
    ASSERT_EQ(actual.size(), wanted.size());
    double largest = 0;
    for (const double value : wanted) largest = std::max(largest, std::fabs(value));
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_NEAR(actual[i], wanted[i], tolerance() * largest) << what << ", element " << i;
    }
  }
};

TEST_P(AdasumTest, IsItsDefinitionForAnyNumberOfRanks) {
  for (std::size_t n = 1; n <= 9; ++n) {
    const Tensors inputs = random_tensors(GetParam(), n, kCounts);
    Tensors results = inputs;
    run(results, {.dtype = GetParam()});
    for (std::size_t i = 0; i < kCounts.size(); ++i) {
      for (const auto& of_rank : results) ASSERT_EQ(of_rank[i], results[0][i]);
      expect_near(values_of(GetParam(), results[0][i]), expected(GetParam(), inputs, i),
                  std::to_string(n) + " ranks, tensor " + std::to_string(i));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(AdasumTest, HasTheSameBitsInAnyCompany) {
  const Tensors inputs = random_tensors(GetParam(), 5, kCounts);
  Tensors together = inputs;
  run(together, {.dtype = GetParam()});
  for (std::size_t i = 0; i < kCounts.size(); ++i) {
    Tensors alone(inputs.size());
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) alone[rank] = {inputs[rank][i]};
    run(alone, {.dtype = GetParam()});
    EXPECT_EQ(alone[0][0], together[0][i]) << i;
  }
}

TEST_P(AdasumTest, LeavesOutRanksThatDoNotContribute) {
  Tensors three = random_tensors(GetParam(), 3, kCounts);
  Tensors five{three[0], {}, three[1], three[2], {}};
  run(three, {.dtype = GetParam()});
  run(five, {.dtype = GetParam()});
  EXPECT_EQ(five[0], three[0]);
  EXPECT_EQ(five[3], three[0]);
}

TEST_P(AdasumTest, AppliesFactors) {
  const Tensors inputs = random_tensors(GetParam(), 3, kCounts);
  Tensors results = inputs;
  run(results, {.dtype = GetParam(), .prescale = 0.5, .postscale = -3.0});
  for (std::size_t i = 0; i < kCounts.size(); ++i) {
    Vector wanted = expected(GetParam(), inputs, i);
    for (double& value : wanted) value *= -1.5;  // a common factor commutes with it
    expect_near(values_of(GetParam(), results[0][i]), wanted, "tensor " + std::to_string(i));
  }
}

TEST_P(AdasumTest, AddsOrthogonalVectorsAndAveragesEqualOnes) {
  Tensors orthogonal{{bytes_of(GetParam(), {1, 0, 2, 0})}, {bytes_of(GetParam(), {0, 3, 0, -1})}};
  run(orthogonal, {.dtype = GetParam()});
  EXPECT_EQ(values_of(GetParam(), orthogonal[0][0]), (Vector{1, 3, 2, -1}));
  Tensors equal(4, {bytes_of(GetParam(), {1, -2, 4})});
  run(equal, {.dtype = GetParam()});
  EXPECT_EQ(values_of(GetParam(), equal[0][0]), (Vector{1, -2, 4}));
}

TEST_P(AdasumTest, ZeroIsNeutral) {
  const Bytes zero = bytes_of(GetParam(), {0, 0, 0}), x = bytes_of(GetParam(), {1, -2, 4});
  for (Tensors tensors : {Tensors{{x}, {zero}}, Tensors{{zero}, {x}}, Tensors{{zero}, {zero}, {x}}}) {
    run(tensors, {.dtype = GetParam()});
    EXPECT_EQ(tensors[0][0], x);
  }
  Tensors nothing(2, {zero});
  run(nothing, {.dtype = GetParam()});
  EXPECT_EQ(nothing[0][0], zero);
}

TEST_P(AdasumTest, NanStaysInItsTensor) {
  Tensors tensors(2, {bytes_of(GetParam(), {1, std::nan("")}), bytes_of(GetParam(), {1, 2})});
  run(tensors, {.dtype = GetParam()});
  for (const double value : values_of(GetParam(), tensors[0][0])) EXPECT_TRUE(std::isnan(value));
  EXPECT_EQ(values_of(GetParam(), tensors[0][1]), (Vector{1, 2}));
}

INSTANTIATE_TEST_SUITE_P(DataTypes, AdasumTest,
                         ::testing::Values(DataType::kFloat16, DataType::kBFloat16, DataType::kFloat32,
                                           DataType::kFloat64),
                         [](const auto& dtype) { return std::string(to_string(dtype.param)); });

}  // namespace
}  // namespace ciranda
