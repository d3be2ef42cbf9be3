#include "engine/engine.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "engine/world.hpp"
#include "engine/worlds_test.hpp"
#include "repetitions.hpp"

namespace ciranda {
namespace {

using testing::kLayouts;
using testing::request;
using testing::World;

class EngineTest : public testing::WorldsTest {};

TEST_P(EngineTest, SumsOverAllRanks) {
  World world(size(), options());
  for (const std::int64_t count : {0, 1, 3, 1000, 5000, 300'001}) {
    world.run([&](Engine& engine) {
      std::vector<float> values(static_cast<std::size_t>(count));
      std::iota(values.begin(), values.end(), static_cast<float>(engine.rank()));
      auto operation = submit_request(engine, request(Collective::kAllreduce, "x" + std::to_string(count),
                                                      DataType::kFloat32, {count}, values.data()));
      const Status status = engine.wait(operation);
      ASSERT_TRUE(status.ok()) << status.message();
      const int n = engine.size();
      for (std::size_t i = 0; i < values.size(); i += 7) {
        ASSERT_EQ(values[i], static_cast<float>(n) * static_cast<float>(i) + static_cast<float>(n * (n - 1) / 2)) << i;
      }
    });
  }
}

TEST_P(EngineTest, RepeatsOneNameManyTimes) {
  World world(size(), options());
  world.run([&](Engine& engine) {
    for (int i = 0; i < static_cast<int>(repetitions(2000)); ++i) {
      std::array<double, 4> values;
      values.fill(i + engine.rank());
      auto r = request(Collective::kAllreduce, "again", DataType::kFloat64, {4}, values.data());
      r.signature.op = ReduceOp::kAverage;
      const Status status = engine.wait(submit_request(engine, std::move(r)));
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_DOUBLE_EQ(values[3], i + (engine.size() - 1) / 2.0);
    }
  });
}

TEST_P(EngineTest, KeepsManyInFlight) {
  World world(size(), options());
  world.run([&](Engine& engine) {
    constexpr std::size_t kTensors = 300;
    for (int step = 0; step < 6; ++step) {
      std::vector<std::vector<std::int32_t>> tensors(kTensors, std::vector<std::int32_t>(257, engine.rank() + step));
      std::vector<Engine::OperationPtr> operations;
      for (std::size_t i = 0; i < kTensors; ++i) {
        auto r = request(Collective::kAllreduce, "t" + std::to_string(i), DataType::kInt32, {257}, tensors[i].data());
        r.is_deferrable = true;
        operations.push_back(submit_request(engine, std::move(r)));
      }
      for (const auto& operation : operations) ASSERT_TRUE(engine.wait(operation).ok());
      const int n = engine.size();
      for (const auto& tensor : tensors) ASSERT_EQ(tensor[256], n * step + n * (n - 1) / 2);
    }
  });
}

TEST_P(EngineTest, BroadcastsAndGathers) {
  World world(size(), options());
  world.run([&](Engine& engine) {
    for (int round = 0; round < 20; ++round) {
      const int root = round % engine.size();
      std::vector<std::int64_t> values(40'000, engine.rank());
      auto b = request(Collective::kBroadcast, "b", DataType::kInt64, {40'000}, values.data());
      b.name += std::to_string(root);
      b.signature.root = root;
      ASSERT_TRUE(engine.wait(submit_request(engine, std::move(b))).ok());
      ASSERT_EQ(values.front(), root);
      ASSERT_EQ(values.back(), root);
      const std::int64_t rows = (engine.rank() + round) % 3;
      std::vector<std::uint16_t> mine(static_cast<std::size_t>(rows * 5), static_cast<std::uint16_t>(engine.rank()));
      auto g = request(Collective::kAllgather, "g", DataType::kUInt16, {rows, 5}, mine.data());
      auto operation = submit_request(engine, std::move(g));
      const Status status = engine.wait(operation);
      ASSERT_TRUE(status.ok()) << status.message();
      const OutputBuffer& output = operation->outputs().front();
      std::int64_t row = 0;
      const auto* data = reinterpret_cast<const std::uint16_t*>(output.data.get());
      for (int rank = 0; rank < engine.size(); ++rank) {
        for (int i = 0; i < (rank + round) % 3; ++i, ++row) ASSERT_EQ(data[row * 5 + 4], rank);
      }
      ASSERT_EQ(output.shape, (Shape{row, 5}));
      ASSERT_TRUE(engine
                      .wait(submit_request(engine,
                                           [&] {
                                             Request r;
                                             r.name = "end";
                                             r.signature.collective = Collective::kBarrier;
                                             return r;
                                           }()))
                      .ok());
    }
  });
}

TEST_P(EngineTest, MismatchFailsOnEveryRankAndTheEngineGoesOn) {
  if (size() == 1) GTEST_SKIP() << "one rank cannot disagree";
  World world(size(), options());
  world.run([&](Engine& engine) {
    std::vector<float> values(8, 1.0F);
    const std::int64_t count = engine.rank() == 1 ? 7 : 8;
    const Status status = engine.wait(
        submit_request(engine, request(Collective::kAllreduce, "wrong", DataType::kFloat32, {count}, values.data())));
    EXPECT_EQ(status.kind(), ErrorKind::kMismatch);
    EXPECT_NE(status.message().find("'wrong': shape"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("[7] on rank 1"), std::string::npos) << status.message();
    ASSERT_TRUE(engine
                    .wait(submit_request(
                        engine, request(Collective::kAllreduce, "wrong", DataType::kFloat32, {8}, values.data())))
                    .ok());
    EXPECT_EQ(values[7], static_cast<float>(engine.size()));
  });
}

TEST_P(EngineTest, DeathFailsEverythingOnTheSurvivors) {
  if (size() == 1) GTEST_SKIP() << "nobody else can die";
  World world(size(), options());
  world.run([&](Engine& engine) {
    if (engine.rank() == 1) {
      world.fabric().kill(1);
      return;
    }
    float value = 1;
    const Status status =
        engine.wait(submit_request(engine, request(Collective::kAllreduce, "x", DataType::kFloat32, {1}, &value)));
    EXPECT_EQ(status.kind(), ErrorKind::kRanksLost) << status.message();
    EXPECT_NE(status.message().find("rank 1"), std::string::npos) << status.message();
    EXPECT_EQ(engine.wait(submit_request(engine, request(Collective::kAllreduce, "y", DataType::kFloat32, {1}, &value)))
                  .kind(),
              ErrorKind::kRanksLost);
  });
}

TEST_P(EngineTest, CleanLeaveFailsWhatOthersWaitFor) {
  if (size() == 1) GTEST_SKIP() << "nobody else can leave";
  World world(size(), options());
  world.run([&](Engine& engine) {
    float value = 1;
    ASSERT_TRUE(
        engine.wait(submit_request(engine, request(Collective::kAllreduce, "x", DataType::kFloat32, {1}, &value)))
            .ok());
    if (engine.rank() == engine.size() - 1) {
      engine.shutdown();
      return;
    }
    const Status status =
        engine.wait(submit_request(engine, request(Collective::kAllreduce, "y", DataType::kFloat32, {1}, &value)));
    EXPECT_EQ(status.kind(), ErrorKind::kAborted) << status.message();
    EXPECT_NE(status.message().find("has shut down"), std::string::npos) << status.message();
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, EngineTest,
                         ::testing::Combine(::testing::Values(1, 2, 4, 7), ::testing::ValuesIn(kLayouts)),
                         [](const auto& test) {
                           return std::to_string(std::get<0>(test.param)) + "ranks" +
                                  to_string(std::get<1>(test.param));
                         });

}  // namespace
}  // namespace ciranda
