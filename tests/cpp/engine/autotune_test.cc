// Ranks try the ways that an allreduce could go, tell each other what these took, and go on with the same one.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "backend/online_autotuner.hpp"
#include "engine/engine.hpp"
#include "engine/sets.hpp"
#include "engine/world.hpp"
#include "engine/worlds_test.hpp"

namespace ciranda {
namespace {

using testing::bare;
using testing::kLayouts;
using testing::request;
using testing::World;
using testing::WorldOptions;

constexpr std::int64_t kTunedCount = 10'000;  // of 4 bytes
constexpr std::size_t kTunedBytes = kTunedCount * sizeof(float);
constexpr int kMostWays = 7;
constexpr int kEnough =
    static_cast<int>(OnlineAutotuner::kFirstTrial + OnlineAutotuner::kTurns * OnlineAutotuner::kCallsATurn * kMostWays);

// Whether a sum meets large values of the other sign early or late shows in every bit.
std::vector<float> make_values(int rank) {
  std::vector<float> values(kTunedCount);
  std::mt19937 random(static_cast<unsigned>(rank));
  std::uniform_real_distribution<float> small(-0.001F, 0.001F);
  for (float& value : values) value = random() % 3 == 0 ? (rank % 2 == 0 ? 0x1p40F : -0x1p40F) : small(random);
  return values;
}

// Made once: it takes longer than a call.
const std::vector<float>& values_of(int rank) {
  static const std::array all{make_values(0), make_values(1), make_values(2), make_values(3)};
  return all.at(static_cast<std::size_t>(rank));
}

std::vector<float> sum(Engine& engine) {
  std::vector<float> values = values_of(engine.rank());
  auto sum = request(Collective::kAllreduce, "x", DataType::kFloat32, {kTunedCount}, values.data());
  EXPECT_TRUE(engine.wait(submit_request(engine, std::move(sum))).ok());
  return values;
}

// As often as it takes to try all ways. No bit depends on which way a call goes.
void sum_many_times(Engine& engine) {
  const std::vector<float> first = sum(engine);
  for (int i = 1; i < kEnough; ++i) ASSERT_EQ(sum(engine), first) << "call " << i;
}

std::size_t n_tried(Engine& engine) {
  const auto all = engine.candidates(Collective::kAllreduce, kTunedBytes);
  return static_cast<std::size_t>(
      std::count_if(all.begin(), all.end(), [](const auto& each) { return each.taken_us; }));
}

class AutotuneTest : public testing::WorldsTest {
 protected:
  WorldOptions options() const {
    WorldOptions options = WorldsTest::options();
    options.config.direct_rounds = false;  // what goes by these has but one way
    return options;
  }
};

TEST_P(AutotuneTest, AllRanksTryTheSameAndGoOnWithTheSame) {
  World world(size(), options());
  world.run(sum_many_times);
  const auto expected = world.engine(0).candidates(Collective::kAllreduce, kTunedBytes);
  EXPECT_GE(n_tried(world.engine(0)), 2U);
  for (int rank = 1; rank < size(); ++rank) {
    const auto found = world.engine(rank).candidates(Collective::kAllreduce, kTunedBytes);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].taken_us, expected[i].taken_us) << found[i].name;
      EXPECT_EQ(found[i].is_chosen, expected[i].is_chosen) << found[i].name;
    }
  }
}

TEST_P(AutotuneTest, NothingIsTriedWhereItIsNotWanted) {
  WorldOptions options = AutotuneTest::options();
  options.config.autotune = false;
  World world(size(), options);
  world.run(sum_many_times);
  EXPECT_EQ(n_tried(world.engine(0)), 0U);
}

// In the middle of a trial; what the others do without it is no part of that.
TEST_P(AutotuneTest, ARankMayJoinAtAnyTime) {
  for (const int n_before : {3, static_cast<int>(OnlineAutotuner::kFirstTrial), 25}) {
    World world(size(), options());
    world.run([&](Engine& engine) {
      for (int i = 0; i < n_before; ++i) sum(engine);
      if (engine.rank() != size() - 1) sum_many_times(engine);
      ASSERT_TRUE(engine.wait(submit_request(engine, bare(Collective::kJoin))).ok());
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, AutotuneTest,
                         ::testing::Combine(::testing::Values(2, 3, 4), ::testing::ValuesIn(kLayouts)),
                         [](const auto& test) {
                           return std::to_string(std::get<0>(test.param)) + "ranks" +
                                  to_string(std::get<1>(test.param));
                         });

}  // namespace
}  // namespace ciranda
