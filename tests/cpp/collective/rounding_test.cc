// What travels as bfloat16: each algorithm rounds the same numbers, once, and all ranks get the same bits.
#include "collective/rounding.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collective/launch.hpp"
#include "collective/stepped_ranks.hpp"
#include "kernels/half.hpp"
#include "kernels/reference.hpp"
#include "repetitions.hpp"

namespace ciranda {
namespace {

using kernels::testing::Bytes;
using testing::Algorithm;
using testing::SteppedRanks;

constexpr int kOnAHost = 2;  // ranks, where hosts combine first

std::vector<int> hosts_of(int n_ranks) {
  std::vector<int> host_of;
  for (int rank = 0; rank < n_ranks; ++rank) host_of.push_back(rank / kOnAHost);
  return host_of;
}

Algorithm rounding_to(int n_together, std::string_view name,
                      std::unique_ptr<RunningCollective> (*start)(const Launch&)) {
  return {name, Collective::kAllreduce, false, 1 << 20, start, hosts_of, {n_together}};
}

const Algorithm kOneShot = rounding_to(1, "one shot", direct_allreduce_one_shot);
const Algorithm kTwoShot = rounding_to(1, "two shot", direct_allreduce_two_shot);
const Algorithm kDoubling = rounding_to(1, "doubling", direct_allreduce_doubling);
const Algorithm kOneShotOfHosts = rounding_to(kOnAHost, "one shot of hosts", direct_allreduce_one_shot);
const Algorithm kByHosts = rounding_to(kOnAHost, "by hosts", direct_allreduce_by_hosts);
const Algorithm kDoublingOfHosts = rounding_to(kOnAHost, "doubling of hosts", direct_allreduce_doubling);

// By the scalar conversions, and the kernels' own reference.
Bytes rounded(Bytes values) {
  for (std::size_t at = 0; at < values.size(); at += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, values.data() + at, sizeof(value));
    value = kernels::float_from_bfloat16(kernels::bfloat16_from_float(value));
    std::memcpy(values.data() + at, &value, sizeof(value));
  }
  return values;
}

Bytes expected(const Reduction& reduction, const std::vector<Bytes>& inputs, std::size_t n_together) {
  const std::size_t count = inputs.front().size() / sizeof(float);
  std::vector<Bytes> parts;
  Reduction of_all = reduction;
  if (n_together > 1) of_all.prescale = 1;
  for (std::size_t i = 0; i < inputs.size(); i += n_together) {
    const std::vector<Bytes> together(inputs.begin() + static_cast<std::ptrdiff_t>(i),
                                      inputs.begin() + static_cast<std::ptrdiff_t>(i + n_together));
    Reduction of_part = reduction;
    of_part.postscale = 1;
    if (reduction.op == ReduceOp::kAverage) of_part.op = ReduceOp::kSum;
    parts.push_back(rounded(n_together == 1 ? inputs[i] : kernels::testing::expected(of_part, together, count)));
  }
  return rounded(kernels::testing::expected(of_all, parts, count));
}

Plan plan_of(const Reduction& reduction, Bytes& values) {
  Plan plan;
  static_cast<Reduction&>(plan) = reduction;
  plan.collective = Collective::kAllreduce;
  plan.n_bytes = values.size();
  const std::size_t half = values.size() / 8 * 4;  // two tensors
  plan.input.add(values.data(), half);
  plan.input.add(values.data() + half, values.size() - half);
  plan.output.add(values.data(), half);
  plan.output.add(values.data() + half, values.size() - half);
  return plan;
}

struct WorldCase {
  int n_ranks;
  std::size_t n_together;
  std::vector<const Algorithm*> algorithms;
};

class RoundingTest : public ::testing::TestWithParam<WorldCase> {};

TEST_P(RoundingTest, IsTheSameByAnyAlgorithm) {
  const auto& [n_ranks, n_together, algorithms] = GetParam();
  constexpr std::array<std::size_t, 5> kCounts{1, 3, 100, 1025, 5003};
  for (std::uint64_t seed = 0; seed < repetitions(8); ++seed) {
    Reduction reduction{.op = seed % 2 == 0 ? ReduceOp::kSum : ReduceOp::kAverage, .n_average = n_ranks};
    if (seed % 3 == 1) reduction.prescale = 0.3;
    if (seed % 3 == 2) reduction.postscale = 1.7;
    for (const std::size_t count : kCounts) {
      const auto inputs =
          kernels::testing::make_inputs(DataType::kFloat32, static_cast<std::size_t>(n_ranks), count, seed);
      const Bytes wanted = expected(reduction, inputs, n_together);
      for (const Algorithm* algorithm : algorithms) {
        std::vector<Bytes> values = inputs;
        std::vector<Plan> plans;
        for (Bytes& each : values) plans.push_back(plan_of(reduction, each));
        SteppedRanks ranks(n_ranks, seed);
        for (int rank = 0; rank < n_ranks; ++rank) {
          ranks.add(rank, *algorithm, plans[static_cast<std::size_t>(rank)]);
        }
        ASSERT_TRUE(ranks.run()) << "deadlock, seed " << seed;
        for (const Bytes& each : values) ASSERT_EQ(each, wanted) << algorithm->name << ", " << count << ", " << seed;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, RoundingTest,
                         ::testing::Values(WorldCase{2, 1, {&kOneShot, &kTwoShot}},
                                           WorldCase{3, 1, {&kOneShot, &kTwoShot, &kDoubling}},
                                           WorldCase{7, 1, {&kOneShot, &kTwoShot, &kDoubling}},
                                           WorldCase{4, kOnAHost, {&kOneShotOfHosts, &kByHosts, &kDoublingOfHosts}},
                                           WorldCase{6, kOnAHost, {&kOneShotOfHosts, &kByHosts, &kDoublingOfHosts}}),
                         [](const auto& test) {
                           return std::to_string(test.param.n_ranks) +
                                  (test.param.n_together == 1 ? "ranks" : "ranksByHosts");
                         });

TEST(RoundingOfInputs, ThatAreHereAlreadyIsTheSame) {
  const auto inputs = kernels::testing::make_inputs(DataType::kFloat32, 4, 1025, 1);
  const Reduction reduction{.op = ReduceOp::kAverage, .postscale = 0.7, .n_average = 4};
  for (const int n_together : {1, 2}) {
    Bytes result(inputs.front().size());
    const Plan plan = plan_of(reduction, result);
    std::vector<const std::byte*> from;
    for (const Bytes& each : inputs) from.push_back(each.data());
    reduce_pieces(plan, from, plan.output, {0, plan.n_bytes}, {n_together});
    EXPECT_EQ(result, expected(reduction, inputs, static_cast<std::size_t>(n_together)));
  }
}

}  // namespace
}  // namespace ciranda
