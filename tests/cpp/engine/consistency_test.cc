// Results that are not the same on all ranks, although they should be: found, and named on every rank.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "engine/sets.hpp"
#include "engine/world.hpp"

namespace ciranda {
namespace {

using testing::bare;
using testing::kLayouts;
using testing::Layout;
using testing::options_for;
using testing::request;
using testing::World;
using testing::WorldOptions;

WorldOptions checking(Layout layout, int size, std::int64_t interval) {
  WorldOptions options = options_for(layout, size);
  options.config.check_consistency = interval;
  return options;
}

Status sum(Engine& engine, const std::string& name, std::size_t count = 100) {
  std::vector<float> values(count, 1);
  Request r =
      request(Collective::kAllreduce, name, DataType::kFloat32, {static_cast<std::int64_t>(count)}, values.data());
  return engine.wait(submit_request(engine, std::move(r)));
}

// A group of two tensors, to which one rank gives the same memory for their results: the first is lost there.
Status call_two(Engine& engine, Collective collective, const std::string& name, int careless_rank) {
  std::vector<float> first(10, 1);
  std::vector<float> second(10, 2);
  Request r = request(collective, name, DataType::kFloat32, {10}, first.data());
  if (info(collective).has_root) r.signature.root = 0;
  r.signature.tensors.push_back(r.signature.tensors.front());
  r.memory.push_back({reinterpret_cast<std::byte*>(second.data()), reinterpret_cast<std::byte*>(second.data())});
  if (engine.rank() == careless_rank) r.memory[0].output = r.memory[1].output;
  return engine.wait(submit_request(engine, std::move(r)));
}

Status broadcast_two(Engine& engine, const std::string& name, int careless_rank) {
  return call_two(engine, Collective::kBroadcast, name, careless_rank);
}

class ConsistencyTest : public ::testing::TestWithParam<Layout> {};

TEST_P(ConsistencyTest, NamesTheFirstTensorAndTheRankOnEveryRank) {
  World world(3, checking(GetParam(), 3, 4));
  world.run([](Engine& engine) {
    for (int round = 0; round < 3; ++round) {
      const std::string n = std::to_string(round);
      EXPECT_TRUE(sum(engine, "a" + n).ok());
      EXPECT_TRUE(broadcast_two(engine, "pair" + n, 1).ok());  // not noticed yet
      EXPECT_TRUE(broadcast_two(engine, "other" + n, 2).ok());
      const Status status = sum(engine, "last" + n);
      EXPECT_EQ(status.kind(), ErrorKind::kMismatch);
      EXPECT_NE(status.message().find("result of broadcast 'pair" + n +
                                      "', tensor 0 of the group has other bits on rank 1 than on ranks 0, 2"),
                std::string::npos)
          << status.message();
      EXPECT_NE(status.message().find("of the last 6 results"), std::string::npos) << status.message();
      for (int i = 0; i < 4; ++i) EXPECT_TRUE(sum(engine, "fine" + n + std::to_string(i)).ok());
    }
  });
}

// Everything that is compared, small and large, by whoever has not joined.
void make_every_call(Engine& engine, const std::string& suffix) {
  for (const std::size_t count : {0U, 10U, 200'000U}) EXPECT_TRUE(sum(engine, "sum" + suffix, count).ok());
  EXPECT_TRUE(call_two(engine, Collective::kAllreduce, "two" + suffix, -1).ok());
  std::vector<std::int32_t> rows(static_cast<std::size_t>(engine.rank()), engine.rank());
  Request gather = request(Collective::kAllgather, "rows" + suffix, DataType::kInt32, {engine.rank()}, rows.data());
  EXPECT_TRUE(engine.wait(submit_request(engine, std::move(gather))).ok());
  std::vector<double> values(30'000, engine.rank());
  Request cast = request(Collective::kBroadcast, "cast" + suffix, DataType::kFloat64, {30'000}, values.data());
  cast.signature.root = 2;
  EXPECT_TRUE(engine.wait(submit_request(engine, std::move(cast))).ok());
  Request mean = request(Collective::kAllreduce, "mean" + suffix, DataType::kFloat64, {30'000}, values.data());
  mean.signature.op = ReduceOp::kAverage;
  mean.signature.is_weighted = true;
  mean.weight = engine.rank() + 1;
  EXPECT_TRUE(engine.wait(submit_request(engine, std::move(mean))).ok());
  Request scatter = request(Collective::kReducescatter, "scatter" + suffix, DataType::kFloat64, {9}, values.data());
  scatter.memory.front().output = nullptr;  // every rank gets other rows: nothing to compare
  EXPECT_TRUE(engine.wait(submit_request(engine, std::move(scatter))).ok());
}

TEST_P(ConsistencyTest, FindsNothingWhereThereIsNothing) {
  constexpr int kSize = 4;
  World world(kSize, checking(GetParam(), kSize, 1));
  world.run([](Engine& engine) {
    for (int round = 0; round < 3; ++round) {
      make_every_call(engine, " of all");
      if (engine.rank() != 1) make_every_call(engine, " of the others");
      EXPECT_TRUE(engine.wait(submit_request(engine, bare(Collective::kJoin))).ok());
    }
  });
}

// A rank that has joined goes through the others' results too, in memory that nobody sees.
TEST_P(ConsistencyTest, GoesOnWhileARankHasJoined) {
  World world(3, checking(GetParam(), 3, 4));
  world.run([](Engine& engine) {
    EXPECT_TRUE(sum(engine, "all").ok());
    if (engine.rank() != 2) {
      EXPECT_TRUE(broadcast_two(engine, "pair", 1).ok());  // not noticed yet
      std::array<float, 10> values{1};
      Request adasum = request(Collective::kAllreduce, "adasum", DataType::kFloat32, {10}, values.data());
      adasum.signature.op = ReduceOp::kAdasum;  // of which a rank that has joined sees nothing: not compared
      EXPECT_TRUE(engine.wait(submit_request(engine, std::move(adasum))).ok());
      EXPECT_TRUE(sum(engine, "others").ok());
      const Status status = sum(engine, "last");
      EXPECT_EQ(status.kind(), ErrorKind::kMismatch);
      EXPECT_NE(status.message().find("result of broadcast 'pair', tensor 0 of the group has other bits on rank 1 than "
                                      "on ranks 0, 2"),
                std::string::npos)
          << status.message();
    }
    EXPECT_TRUE(engine.wait(submit_request(engine, bare(Collective::kJoin))).ok());
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(sum(engine, "all again" + std::to_string(i)).ok());
  });
}

// What one rank has sent and what another has received.
TEST_P(ConsistencyTest, ComparesMessagesBetweenTwoRanks) {
  World world(3, checking(GetParam(), 3, 2));
  world.run([](Engine& engine) {
    const auto pass = [&](const std::string& name, bool is_careless) {
      std::array<std::array<float, 10>, 2> values{{{1}, {2}}};
      Request r = request(Collective::kTransfer, name, DataType::kFloat32, {10}, values[0].data());
      r.signature.tensors.push_back(r.signature.tensors.front());
      auto* second = reinterpret_cast<std::byte*>(values[1].data());
      r.memory.push_back({second, second});
      if (is_careless) r.memory[0].output = r.memory[1].output;
      r.signature.root = 2;
      r.process_set = engine.pair_with(2 - engine.rank());
      if (engine.rank() == 2) r.memory[0].output = r.memory[1].output = nullptr;
      return engine.wait(submit_request(engine, std::move(r)));
    };
    if (engine.rank() == 1) return;
    EXPECT_TRUE(pass("fine", false).ok());
    EXPECT_TRUE(pass("fine too", false).ok());
    EXPECT_TRUE(pass("rows", engine.rank() == 0).ok());
    const Status status = pass("last", false);
    EXPECT_EQ(status.kind(), ErrorKind::kMismatch);
    EXPECT_NE(status.message().find("result of send/recv 'from 2 rows', tensor 0 of the group has other bits on rank 2 "
                                    "than on rank 0"),
              std::string::npos)
        << status.message();
  });
}

TEST_P(ConsistencyTest, IsNotAskedFor) {
  World world(2, options_for(GetParam(), 2));
  world.run([](Engine& engine) {
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(broadcast_two(engine, "x", 1).ok());
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, ConsistencyTest, ::testing::ValuesIn(kLayouts),
                         [](const auto& layout) { return testing::to_string(layout.param); });

}  // namespace
}  // namespace ciranda
