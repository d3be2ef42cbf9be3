// OpHandle: that a call that is made again with one looks no name up, however it is agreed on and carried out; and that
// one is of use where its operation was removed, is in use, or is of another world.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/small_sums.hpp"
#include "engine/watchdog.hpp"
#include "engine/world.hpp"
#include "text_matchers.hpp"

namespace ciranda {
namespace {

using testing::expected;
using testing::filled;
using testing::kLayouts;
using testing::Layout;
using testing::meet;
using testing::options_for;
using testing::patient;
using testing::sum_of;
using testing::Watchdog;
using testing::World;

// The sum of a step, as of a caller who submits a request, or a call, and then waits, or of one who blocks.
enum class How : std::uint8_t { kSubmitted, kCalled, kBlocking };

void sum(Engine& engine, How how, const std::string& name, std::size_t count, int step, OpHandle* handle,
         std::uint32_t lane = 0) {
  std::vector<float> values = filled(count, engine.rank(), step);
  Request request = sum_of(name, values);
  request.lane = lane;
  request.is_awaited = how == How::kBlocking;
  OpHandle of_this_call;
  std::optional<Engine::OperationPtr> operation;
  if (handle == nullptr) handle = &of_this_call;
  if (how == How::kBlocking) operation = repeat(engine, CallOf(request), handle);
  if (how == How::kCalled) operation = engine.submit(CallOf(request), nullptr, handle);
  if (!operation) operation = submit_request(engine, std::move(request), nullptr, handle);
  if (*operation != nullptr) {
    ASSERT_TRUE(engine.wait(*operation).ok()) << (*operation)->status().message();
  }
  EXPECT_EQ(values, std::vector<float>(count, expected(engine.size(), step)));
}

TEST(Handles, SaveACallThatIsMadeAgainLookingItsNameUp) {
  constexpr int kSteps = 20;
  constexpr std::size_t kLarge = 150'000;  // for no direct round
  for (const Layout layout : kLayouts) {
    for (const How how : {How::kSubmitted, How::kCalled, How::kBlocking}) {
      for (const std::size_t count : {std::size_t{4}, kLarge}) {
        const Watchdog watchdog("calls with handles, " + to_string(layout));
        World world(2, options_for(layout, 2));
        world.run([&](Engine& engine) {
          OpHandle handle;
          sum(engine, how, "y", count, 0, nullptr);
          sum(engine, how, "x", count, 0, &handle);
          const std::uint64_t n_before = engine.n_lookups();
          for (int step = 0; step < kSteps; ++step) sum(engine, how, "x", count, step, &handle);
          EXPECT_EQ(engine.n_lookups() - n_before, 0U) << to_string(layout);
          for (int step = 0; step < kSteps; ++step) sum(engine, how, step % 2 == 0 ? "y" : "x", count, step, nullptr);
          const std::uint64_t n_found = engine.n_lookups() - n_before;
          if (how != How::kBlocking) {
            EXPECT_EQ(n_found, kSteps) << to_string(layout) << ": once a call without one";
          } else {  // but for one whose name was the last to be found
            EXPECT_LE(n_found, kSteps) << to_string(layout);
            EXPECT_GT(n_found, 0U) << to_string(layout);
          }
        });
      }
    }
  }
}

// The first call with one may be carried out at once already, and the next of another name.
TEST(Handles, HaveTheNameOfTheLastCall) {
  const Watchdog watchdog("handles that change names");
  World world(2);
  world.run([](Engine& engine) {
    OpHandle handle;
    for (int step = 0; step < 4; ++step) {
      for (const char* name : {"x", "y"}) sum(engine, How::kBlocking, name, 4, step, nullptr);
    }
    for (const char* name : {"x", "y"}) {
      sum(engine, How::kBlocking, name, 4, 0, &handle);
      const std::uint64_t n_before = engine.n_lookups();
      for (int step = 0; step < 10; ++step) sum(engine, How::kBlocking, name, 4, step, &handle);
      EXPECT_EQ(engine.n_lookups(), n_before) << name;
    }
  });
}

// A name is another in each lane.
TEST(Handles, HaveTheLaneOfTheLastCall) {
  const Watchdog watchdog("handles that change lanes");
  World world(2, patient());
  world.run([](Engine& engine) {
    OpHandle handle;
    const auto perform = [&](int step) {
      const std::uint32_t lane = step % 2 == 0 ? 0 : 1;
      sum(engine, How::kBlocking, "x", 4 + lane, step, &handle, lane);
    };
    EXPECT_EQ(meet(engine, 20, perform), 20U);
    sum(engine, How::kBlocking, "x", 5, 0, &handle, 1);
    const std::uint64_t n_before = engine.n_lookups();
    for (int step = 0; step < 10; ++step) sum(engine, How::kBlocking, "x", 5, step, &handle, 1);
    EXPECT_EQ(engine.n_lookups(), n_before);
  });
}

// The operation of a name that has no cache id any more is removed.
TEST(Handles, OfNamesThatAreForgotten) {
  const Watchdog watchdog("forgotten names");
  auto options = options_for(Layout::kArena, 2);
  options.config.cache_capacity = 2;
  World world(2, options);
  world.run([](Engine& engine) {
    std::array<OpHandle, 5> handles;
    for (int step = 0; step < 40; ++step) {
      const auto nth = static_cast<std::size_t>(step * step) % handles.size();
      sum(engine, step % 2 == 0 ? How::kBlocking : How::kSubmitted, "x" + std::to_string(nth), 4, step, &handles[nth]);
    }
  });
}

TEST(Handles, RefuseASecondCallOfANameInUse) {
  const Watchdog watchdog("a name in use");
  World world(2);
  std::latch was_refused(1);
  world.run([&](Engine& engine) {
    OpHandle handle;
    sum(engine, How::kSubmitted, "x", 4, 0, &handle);
    std::vector<float> values(4);
    if (engine.rank() == 1) was_refused.wait();
    const auto first = submit_request(engine, sum_of("x", values), nullptr, &handle);
    if (engine.rank() == 0) {
      const auto second = submit_request(engine, sum_of("x", values), nullptr, &handle);
      EXPECT_TRUE(second->is_refused());
      EXPECT_TRUE(contains(second->status().message(), "Duplicate name 'x'")) << second->status().message();
      was_refused.count_down();
    }
    static_cast<void>(engine.wait(first));  // which may have failed, too
  });
}

// As a program keeps them that joins one world after the other, or is in two.
TEST(Handles, AreOfUseInAnotherWorld) {
  const Watchdog watchdog("handles in several worlds");
  std::array<OpHandle, 2> handles;
  const auto use = [&](Engine& engine) {
    for (int step = 0; step < 5; ++step) {
      for (const How how : {How::kSubmitted, How::kBlocking}) {
        sum(engine, how, "x", 4, step, &handles[static_cast<std::size_t>(engine.rank())]);
      }
    }
  };
  for (int i = 0; i < 3; ++i) {
    World world(2, options_for(Layout::kArena, 2));
    world.run(use);
    World second(2, options_for(Layout::kArena, 2));
    second.run(use);
    world.run(use);
  }
}

}  // namespace
}  // namespace ciranda
