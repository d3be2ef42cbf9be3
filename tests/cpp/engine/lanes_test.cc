// Lanes that come to be when they are first used: in any order, while ranks have joined, and when there is no world
// any more before they do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "agree/process_sets.hpp"
#include "engine/sets.hpp"
#include "engine/watchdog.hpp"
#include "engine/world.hpp"

namespace ciranda {
namespace {

using testing::bare;
using testing::kLayouts;
using testing::Layout;
using testing::options_for;
using testing::request;
using testing::World;

Request sum_on(std::vector<double>& values, const std::string& name, std::uint32_t lane, std::uint32_t set = 0) {
  Request r = request(Collective::kAllreduce, name, DataType::kFloat64, {static_cast<std::int64_t>(values.size())},
                      values.data());
  r.is_cacheable = !name.empty();
  r.process_set = set;
  r.lane = lane;
  return r;
}

// By a blocking call. Of 1 from each rank that takes part; -1 if it fails.
double sum_on(Engine& engine, std::uint32_t lane, const std::string& name = "", std::uint32_t set = 0) {
  std::vector<double> values(3, 1);
  Request request = sum_on(values, name, lane, set);
  request.is_awaited = true;
  std::optional<Engine::OperationPtr> operation = repeat(engine, CallOf(request));
  if (!operation) operation = submit_request(engine, std::move(request));
  const Status status = *operation == nullptr ? Status::ok_status() : engine.wait(*operation);
  EXPECT_TRUE(status.ok()) << status.message();
  return status.ok() ? values.back() : -1;
}

class LanesTest : public ::testing::TestWithParam<Layout> {};

// Every rank uses them in an order of its own.
TEST_P(LanesTest, ComeToBeWhenTheyAreUsed) {
  const testing::Watchdog watchdog("lanes");
  World world(3, options_for(GetParam(), 3));
  world.run([&](Engine& engine) {
    const auto added = submit_request(engine, bare(Collective::kAddProcessSet, {0, 2}));
    ASSERT_TRUE(engine.wait(added).ok());
    std::mt19937 random(static_cast<unsigned>(engine.rank()));
    for (const std::uint32_t set : {0U, static_cast<std::uint32_t>(added->value())}) {
      if (set != 0 && engine.rank() == 1) continue;
      std::vector<std::uint32_t> lanes(kMaxLanes);
      std::iota(lanes.begin(), lanes.end(), 0U);
      std::shuffle(lanes.begin(), lanes.end(), random);
      for (int round = 0; round < 2; ++round) {
        std::vector<std::vector<double>> values(kMaxLanes, std::vector<double>(3, 1));
        std::vector<Engine::OperationPtr> operations;
        for (const std::uint32_t lane : lanes) {
          operations.push_back(submit_request(engine, sum_on(values[lane], round == 0 ? "" : "x", lane, set)));
        }
        for (const auto& operation : operations) ASSERT_TRUE(engine.wait(operation).ok());
        for (const auto& each : values) ASSERT_EQ(each.back(), set == 0 ? 3 : 2);
      }
      std::vector<double> none(3);
      const Status status = engine.wait(submit_request(engine, sum_on(none, "x", kMaxLanes, set)));
      EXPECT_NE(status.message().find("lane 64 does not exist"), std::string::npos) << status.message();
    }
    const Status own = engine.wait(submit_request(engine, bare(Collective::kAddLane, {1})));
    EXPECT_NE(own.message().find("created when they are first used"), std::string::npos) << own.message();
  });
}

// What waits on one rank for a lane that others do not use yet holds nobody up.
TEST_P(LanesTest, ThatComeLateOnOneRankHoldUpNoOther) {
  const testing::Watchdog watchdog("late lanes");
  World world(2, options_for(GetParam(), 2));
  world.run([&](Engine& engine) {
    std::vector<double> early(3, 1);
    Engine::OperationPtr operation;
    if (engine.rank() == 0) operation = submit_request(engine, sum_on(early, "early", 1));
    for (int i = 0; i < 5; ++i) ASSERT_EQ(sum_on(engine, 0, "x"), 2);
    ASSERT_EQ(sum_on(engine, 2, "x"), 2);
    if (engine.rank() == 1) operation = submit_request(engine, sum_on(early, "early", 1));
    ASSERT_TRUE(engine.wait(operation).ok());
    EXPECT_EQ(early.back(), 2);
  });
}

// A rank that has joined is one that has joined the new lane too, and what comes after that is counted anew on all.
TEST_P(LanesTest, AreJoinedByRanksThatHaveNeverUsedThem) {
  const testing::Watchdog watchdog("joined lanes");
  constexpr int kSize = 3;
  World world(kSize, options_for(GetParam(), kSize));
  world.run([&](Engine& engine) {
    constexpr std::uint32_t kOld = kMaxLanes - 1;  // in which the calls are some that are made again
    for (int epoch = 0; epoch < 40; ++epoch) {
      const auto lane = static_cast<std::uint32_t>(1 + epoch);
      const bool works = engine.rank() != epoch % kSize;
      for (int i = 0; works && i < 1 + engine.rank() % 2; ++i) {
        for (const std::uint32_t each : {lane, kOld}) {
          const double sum = sum_on(engine, each);
          ASSERT_TRUE(sum == 1 || sum == 2) << sum;
        }
      }
      ASSERT_TRUE(engine.wait(submit_request(engine, bare(Collective::kJoin))).ok());
      for (const std::uint32_t each : {kOld, lane, kOld}) {  // at once: they may not know yet that all have joined
        ASSERT_EQ(sum_on(engine, each), kSize);
        ASSERT_EQ(sum_on(engine, each, "named"), kSize);
      }
    }
  });
}

TEST_P(LanesTest, EndWithTheWorldBeforeTheyCameToBe) {
  const testing::Watchdog watchdog("ended lanes");
  World world(2, options_for(GetParam(), 2));
  world.run([&](Engine& engine) {
    std::vector<double> values(3, 1);
    if (engine.rank() == 0) {
      const auto pending = submit_request(engine, sum_on(values, "pending", 3));
      const Status status = engine.wait(pending);  // until the other has left
      EXPECT_EQ(status.kind(), ErrorKind::kAborted) << status.message();
    } else {
      const auto pending = submit_request(engine, sum_on(values, "pending", 4));
      EXPECT_FALSE(engine.poll(pending));
      engine.shutdown();
      EXPECT_EQ(engine.wait(pending).kind(), ErrorKind::kAborted);
    }
  });
}

TEST_P(LanesTest, EndWithTheirSetBeforeTheyCameToBe) {
  const testing::Watchdog watchdog("lanes of a removed set");
  World world(2, options_for(GetParam(), 2));
  world.run([&](Engine& engine) {
    const auto added = submit_request(engine, bare(Collective::kAddProcessSet, {0}));
    ASSERT_TRUE(engine.wait(added).ok());
    const auto both = submit_request(engine, bare(Collective::kAddProcessSet, {1}));
    ASSERT_TRUE(engine.wait(both).ok());
    // Alone in its set, a rank needs nobody for a lane.
    const auto own = static_cast<std::uint32_t>(engine.rank() == 0 ? added->value() : both->value());
    EXPECT_EQ(sum_on(engine, 7, "alone", own), 1);
    ASSERT_TRUE(engine.wait(submit_request(engine, bare(Collective::kRemoveProcessSet, {added->value()}))).ok());
    std::vector<double> values(3, 1);
    const Status status =
        engine.wait(submit_request(engine, sum_on(values, "gone", 8, static_cast<std::uint32_t>(added->value()))));
    EXPECT_EQ(status.kind(), ErrorKind::kInvalidArgument) << status.message();
    EXPECT_EQ(sum_on(engine, 8), 2);
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, LanesTest, ::testing::ValuesIn(kLayouts),
                         [](const auto& layout) { return testing::to_string(layout.param); });

}  // namespace
}  // namespace ciranda
