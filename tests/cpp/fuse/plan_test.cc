// Plans: which bytes of which tensors travel together, and where gathered rows go.
#include "fuse/plan.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

namespace ciranda {
namespace {

// Requests over one stretch of memory: tensor i reads at 1000 * i and writes 500 bytes behind.
class Plans : public ::testing::Test {
 protected:
  Request request(Collective collective, std::vector<TensorSignature> tensors) {
    Request out;
    out.name = "x";
    out.signature.collective = collective;
    out.signature.tensors = std::move(tensors);
    for (std::size_t i = 0; i < out.signature.tensors.size(); ++i) {
      out.memory.push_back({input(n_tensors_), output(n_tensors_)});
      ++n_tensors_;
    }
    return out;
  }
  std::byte* input(std::size_t tensor) { return memory_.data() + 1000 * tensor; }
  std::byte* output(std::size_t tensor) { return input(tensor) + 500; }

 private:
  std::vector<std::byte> memory_ = std::vector<std::byte>(20'000);
  std::size_t n_tensors_ = 0;
};

template <typename Byte>
void expect_pieces(const PieceList<Byte>& list, const std::vector<std::pair<const std::byte*, std::size_t>>& expected) {
  ASSERT_EQ(list.pieces().size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(list.pieces()[i].data(), expected[i].first) << i;
    EXPECT_EQ(list.pieces()[i].size(), expected[i].second) << i;
  }
}

TEST_F(Plans, OfAllreduceJoinRequestsInOrder) {
  Request a = request(Collective::kAllreduce, {{DataType::kFloat32, {3}}});
  Request b = request(Collective::kAllreduce, {{DataType::kFloat32, {2, 2}}, {DataType::kFloat32, {}}});
  for (Request* r : {&a, &b}) {
    r->signature.op = ReduceOp::kAverage;
    r->signature.prescale = 0.5;
    r->signature.postscale = 4;
  }
  const std::array<const Request*, 2> both{&a, &b};
  const auto plans = plan_reduction(both);
  ASSERT_EQ(plans.size(), 1U);
  EXPECT_EQ(plans[0].collective, Collective::kAllreduce);
  EXPECT_EQ(plans[0].dtype, DataType::kFloat32);
  EXPECT_EQ(plans[0].op, ReduceOp::kAverage);
  EXPECT_EQ(plans[0].prescale, 0.5);
  EXPECT_EQ(plans[0].postscale, 4);
  EXPECT_EQ(plans[0].n_bytes, 32U);
  expect_pieces(plans[0].input, {{input(0), 12}, {input(1), 16}, {input(2), 4}});
  expect_pieces(plans[0].output, {{output(0), 12}, {output(1), 16}, {output(2), 4}});
}

TEST_F(Plans, OfAllreduceAreOneADtypeInOrderOfAppearance) {
  const Request group =
      request(Collective::kAllreduce, {{DataType::kInt8, {5}}, {DataType::kFloat64, {1}}, {DataType::kInt8, {7}}});
  const std::array<const Request*, 1> one{&group};
  const auto plans = plan_reduction(one);
  ASSERT_EQ(plans.size(), 2U);
  EXPECT_EQ(plans[0].dtype, DataType::kInt8);
  expect_pieces(plans[0].input, {{input(0), 5}, {input(2), 7}});
  EXPECT_EQ(plans[1].dtype, DataType::kFloat64);
  expect_pieces(plans[1].output, {{output(1), 8}});
}

TEST_F(Plans, OfEmptyTensorsHaveNoPieces) {
  const Request empty = request(Collective::kAllreduce, {{DataType::kInt8, {0}}, {DataType::kInt8, {3, 0}}});
  const std::array<const Request*, 1> one{&empty};
  const auto plans = plan_reduction(one);
  ASSERT_EQ(plans.size(), 1U);
  EXPECT_EQ(plans[0].input.n_bytes(), 0U);
  EXPECT_TRUE(plan_reduction({}).empty());
}

TEST_F(Plans, OfBroadcastMixDtypes) {
  Request mixed = request(Collective::kBroadcast, {{DataType::kInt8, {5}}, {DataType::kFloat64, {2}}});
  mixed.signature.root = 3;
  const Plan plan = plan_broadcast(mixed);
  EXPECT_EQ(plan.collective, Collective::kBroadcast);
  EXPECT_EQ(plan.root, 3);
  expect_pieces(plan.input, {{input(0), 5}, {input(1), 16}});
  expect_pieces(plan.output, {{output(0), 5}, {output(1), 16}});
}

TEST_F(Plans, OfAllgatherGiveEachRankItsRows) {
  const Request group = request(Collective::kAllgather, {{DataType::kFloat16, {2, 3}}, {DataType::kInt8, {1}}});
  const std::array<std::byte*, 2> outputs{output(10), output(11)};
  const Plan plan = plan_gather(group, {{2, 0, 5}, {1, 4, 0}}, outputs);
  EXPECT_EQ(plan.collective, Collective::kAllgather);
  expect_pieces(plan.input, {{input(0), 12}, {input(1), 1}});
  EXPECT_EQ(plan.n_bytes, 30U);  // of the last rank
  ASSERT_EQ(plan.output_by_rank.size(), 3U);
  expect_pieces(plan.output_by_rank[0], {{output(10), 12}, {output(11), 1}});
  expect_pieces(plan.output_by_rank[1], {{output(11) + 1, 4}});
  expect_pieces(plan.output_by_rank[2], {{output(10) + 12, 30}});
}

TEST_F(Plans, OfReducescatterCutTheRowsWithTheRestInFront) {
  Request group = request(Collective::kReducescatter,
                          {{DataType::kFloat32, {7, 2}}, {DataType::kInt8, {2}}, {DataType::kFloat32, {1}}});
  group.signature.op = ReduceOp::kMin;
  const std::array<std::byte*, 3> outputs{output(0), output(1), output(2)};
  const auto plans = plan_reducescatter(group, 3, 1, outputs);
  ASSERT_EQ(plans.size(), 2U);
  EXPECT_EQ(plans[0].op, ReduceOp::kMin);
  EXPECT_EQ(plans[0].n_bytes, 3 * 8U + 4);  // the first rank's
  ASSERT_EQ(plans[0].input_by_rank.size(), 3U);
  expect_pieces(plans[0].input_by_rank[0], {{input(0), 24}, {input(2), 4}});
  expect_pieces(plans[0].input_by_rank[1], {{input(0) + 24, 16}});
  expect_pieces(plans[0].input_by_rank[2], {{input(0) + 40, 16}});
  expect_pieces(plans[0].output, {{output(0), 16}});
  EXPECT_EQ(plans[1].dtype, DataType::kInt8);
  EXPECT_EQ(plans[1].n_bytes, 1U);
  expect_pieces(plans[1].output, {{output(1), 1}});
}

std::vector<Plan> in_chunks(Plan plan, std::size_t most_bytes, int n_ranks = 1) {
  return std::move(plan).in_chunks(most_bytes, n_ranks);
}

TEST_F(Plans, AreCutAcrossTensors) {
  Request group = request(Collective::kAllreduce, {{DataType::kFloat32, {25}}, {DataType::kFloat32, {20}}});
  group.signature.op = ReduceOp::kAverage;
  group.signature.prescale = 0.5;
  const std::array<const Request*, 1> one{&group};
  Plan whole = plan_reduction(one).front();
  whole.contributors = {0, 2};
  whole.receivers = {1};
  whole.n_average = 2;
  const auto chunks = in_chunks(whole, 64, 3);
  ASSERT_EQ(chunks.size(), 3U);
  expect_pieces(chunks[0].input, {{input(0), 64}});
  expect_pieces(chunks[1].input, {{input(0) + 64, 36}, {input(1), 28}});
  expect_pieces(chunks[1].output, {{output(0) + 64, 36}, {output(1), 28}});
  expect_pieces(chunks[2].output, {{output(1) + 28, 52}});
  EXPECT_EQ(chunks[2].n_bytes, 52U);
  for (const Plan& chunk : chunks) {
    EXPECT_EQ(chunk.collective, Collective::kAllreduce);
    EXPECT_EQ(chunk.dtype, DataType::kFloat32);
    EXPECT_EQ(chunk.op, ReduceOp::kAverage);
    EXPECT_EQ(chunk.prescale, 0.5);
    EXPECT_EQ(chunk.n_average, 2);
    EXPECT_EQ(chunk.contributors, (std::vector<int>{0, 2}));
    EXPECT_EQ(chunk.receivers, std::vector<int>{1});
  }
}

TEST_F(Plans, AreNotCutIfTheyFit) {
  const Request small = request(Collective::kAllreduce, {{DataType::kInt8, {64}}});
  const std::array<const Request*, 1> one{&small};
  EXPECT_EQ(in_chunks(plan_reduction(one).front(), 64).size(), 1U);
  EXPECT_EQ(in_chunks(plan_reduction(one).front(), 0).size(), 1U);
  EXPECT_EQ(in_chunks(Plan(), 64).size(), 1U);
}

// Of ranks that give nothing, of one that gives less than a chunk, and of one that gives more; on one without memory.
TEST_F(Plans, AreCutWithinTheRangeOfEachRank) {
  const Request rows = request(Collective::kAllgather, {{DataType::kInt8, {100}}});
  const std::array<std::byte*, 1> outputs{output(10)};
  const auto chunks = in_chunks(plan_gather(rows, {{100, 0, 10, 130}}, outputs), 4 * 64, 4);
  ASSERT_EQ(chunks.size(), 3U);
  expect_pieces(chunks[0].input, {{input(0), 64}});
  expect_pieces(chunks[0].output_by_rank[2], {{output(10) + 100, 10}});
  EXPECT_EQ(chunks[0].n_bytes_from, (std::vector<std::size_t>{64, 0, 10, 64}));
  expect_pieces(chunks[1].input, {{input(0) + 64, 36}});
  expect_pieces(chunks[1].output_by_rank[0], {{output(10) + 64, 36}});
  expect_pieces(chunks[1].output_by_rank[3], {{output(10) + 174, 64}});
  EXPECT_EQ(chunks[1].n_bytes_from, (std::vector<std::size_t>{36, 0, 0, 64}));
  EXPECT_EQ(chunks[2].n_bytes, 2U);
  expect_pieces(chunks[2].input, {});
  const auto without = in_chunks(plan_gather(rows, {{100, 0, 10, 130}}, {}), 4 * 64, 4);
  EXPECT_EQ(without[1].n_bytes_from, chunks[1].n_bytes_from);
  expect_pieces(without[1].output_by_rank[3], {});
}

TEST_F(Plans, OfAlltoallCutBothWays) {
  const Request group = request(Collective::kAlltoall, {{DataType::kFloat32, {0, 2}}, {DataType::kInt8, {0}}});
  const std::array<std::byte*, 2> outputs{output(0), output(1)};
  const Plan plan = plan_exchange(group, {{1, 0, 2}, {3, 0, 0}}, {{4, 1, 0}, {0, 5, 6}}, outputs, 99);
  EXPECT_EQ(plan.collective, Collective::kAlltoall);
  EXPECT_EQ(plan.n_bytes, 99U);
  ASSERT_EQ(plan.input_by_rank.size(), 3U);
  expect_pieces(plan.input_by_rank[0], {{input(0), 8}, {input(1), 3}});
  expect_pieces(plan.input_by_rank[1], {});
  expect_pieces(plan.input_by_rank[2], {{input(0) + 8, 16}});
  ASSERT_EQ(plan.output_by_rank.size(), 3U);
  expect_pieces(plan.output_by_rank[0], {{output(0), 32}});
  expect_pieces(plan.output_by_rank[1], {{output(0) + 32, 8}, {output(1), 5}});
  expect_pieces(plan.output_by_rank[2], {{output(1) + 5, 6}});
}

TEST_F(Plans, OfGatherKnowWhatTheOthersHaveWithoutMemoryForIt) {
  const Request mine = request(Collective::kGather, {{DataType::kFloat16, {2, 3}}});
  const Plan plan = plan_gather(mine, {{2, 0, 5}}, {});
  EXPECT_EQ(plan.collective, Collective::kGather);
  EXPECT_EQ(plan.n_bytes, 30U);
  ASSERT_EQ(plan.output_by_rank.size(), 3U);
  expect_pieces(plan.output_by_rank[2], {});
}

TEST_F(Plans, AreForTheMemoryOfTheirTensors) {
  constexpr DeviceType kDevice{200};
  const auto on_device = [&](Collective collective) {
    Request made = request(collective, {{DataType::kFloat32, {2}}});
    made.memory.front().place = {kDevice, 1, nullptr};
    return made;
  };
  const std::array outputs{output(0)};
  const Request reduced = on_device(Collective::kAllreduce);
  const Request scattered = on_device(Collective::kReducescatter);
  const Request sent = on_device(Collective::kBroadcast);
  const Request gathered = on_device(Collective::kAllgather);
  const Request exchanged = on_device(Collective::kAlltoall);
  for (const Plan& plan : {plan_reduction(std::array{&reduced}).front(), plan_broadcast(sent),
                           plan_reducescatter(scattered, 2, 0, outputs).front(), plan_gather(gathered, {{2}}, outputs),
                           plan_exchange(exchanged, {{2}}, {{2}}, outputs, 8)}) {
    EXPECT_EQ(plan.place.type, kDevice) << to_string(plan.collective);
    EXPECT_EQ(plan.place.index, 1);
  }
  const Request on_host = request(Collective::kAllreduce, {{DataType::kFloat32, {2}}});
  EXPECT_TRUE(plan_reduction(std::array{&on_host}).front().place.is_host());
}

}  // namespace
}  // namespace ciranda
