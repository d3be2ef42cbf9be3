// The moments of a call: noted where they belong, which their order on one rank and across ranks shows.
#include "complete/moments.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "engine/watchdog.hpp"
#include "engine/world.hpp"

namespace ciranda {
namespace {

using testing::kLayouts;
using testing::Layout;
using testing::options_for;
using testing::request;
using testing::Watchdog;
using testing::World;

using Calls = std::vector<Moments>;  // of one rank

// How a call is made decides its way through the engine.
struct Way {
  std::string name;
  std::size_t count;
  bool is_awaited;
  bool is_deferrable;
};
const std::vector<Way> kWays{{"small", 3, true, false},
                             {"large", 50'000, true, false},
                             {"asynchronous", 3, false, false},
                             {"deferrable", 3, false, true}};

Engine::OperationPtr submit(Engine& engine, const Way& way, std::vector<float>& values) {
  Request r = request(Collective::kAllreduce, way.name, DataType::kFloat32, {static_cast<std::int64_t>(values.size())},
                      values.data());
  r.is_awaited = way.is_awaited;
  r.is_deferrable = way.is_deferrable;
  r.is_profiled = true;
  return engine.submit(std::move(r));
}

std::vector<Calls> moments_of(World& world, const Way& way, int n_calls) {
  std::vector<Calls> of_ranks(static_cast<std::size_t>(world.size()));
  world.run([&](Engine& engine) {
    std::vector<float> values(way.count);
    for (int call = 0; call < n_calls; ++call) {
      const auto operation = submit(engine, way, values);
      ASSERT_TRUE(engine.wait(operation).ok());
      ASSERT_NE(operation->moments(), nullptr);
      of_ranks[static_cast<std::size_t>(engine.rank())].push_back(*operation->moments());
    }
  });
  return of_ranks;
}

void expect_in_order(const Moments& moments) {
  EXPECT_GT(moments[Moment::kSubmitted], Moments::TimePoint{});
  for (std::size_t i = 1; i < kMomentCount; ++i) {
    EXPECT_LE(moments[static_cast<Moment>(i - 1)], moments[static_cast<Moment>(i)]) << "moment " << i;
  }
}

// No rank can know that all are ready before all are.
void expect_agreed_after_all_were_ready(const std::vector<Calls>& of_ranks, std::size_t call) {
  Moments::TimePoint last_ready{};
  for (const Calls& calls : of_ranks) last_ready = std::max(last_ready, calls[call][Moment::kReady]);
  for (const Calls& calls : of_ranks) EXPECT_GE(calls[call][Moment::kAgreed], last_ready) << "call " << call;
}

TEST(Moments, FollowEachOtherOnARankAndAcrossRanks) {
  const Watchdog watchdog("moments");
  for (const Layout layout : kLayouts) {
    for (const Way& way : kWays) {
      SCOPED_TRACE(to_string(layout) + ", " + way.name);
      World world(3, options_for(layout, 3));
      const std::vector<Calls> of_ranks = moments_of(world, way, 20);
      for (const Calls& calls : of_ranks) {
        ASSERT_EQ(calls.size(), 20U);
        for (const Moments& moments : calls) expect_in_order(moments);
      }
      for (std::size_t call = 0; call < 20; ++call) expect_agreed_after_all_were_ready(of_ranks, call);
    }
  }
}

TEST(Moments, OfACallOfOneRank) {
  World world(1);
  const std::vector<Calls> of_ranks = moments_of(world, kWays.front(), 3);
  ASSERT_EQ(of_ranks.front().size(), 3U);
  for (const Moments& moments : of_ranks.front()) expect_in_order(moments);
}

TEST(Moments, OfACallThatFailsEndWithItsFailure) {
  World world(2);
  world.run([](Engine& engine) {
    std::vector<float> values(static_cast<std::size_t>(2 + engine.rank()));
    const auto operation = submit(engine, kWays.front(), values);
    EXPECT_EQ(engine.wait(operation).kind(), ErrorKind::kMismatch);
    const Moments& moments = *operation->moments();
    EXPECT_EQ(moments[Moment::kAgreed], Moments::TimePoint{});
    EXPECT_GE(moments[Moment::kDone], moments[Moment::kReady]);
    EXPECT_GT(moments[Moment::kReady], Moments::TimePoint{});
  });
}

TEST(Moments, AreKeptOnlyOnRequest) {
  World world(1);
  world.run([](Engine& engine) {
    std::vector<float> values(3);
    const auto operation = engine.submit(request(Collective::kAllreduce, "x", DataType::kFloat32, {3}, values.data()));
    ASSERT_TRUE(engine.wait(operation).ok());
    EXPECT_EQ(operation->moments(), nullptr);
  });
}

}  // namespace
}  // namespace ciranda
