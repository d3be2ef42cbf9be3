// Ranks that wait for each other are told by themselves, where no other thread can make a call, and only then.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.hpp"
#include "engine/sets.hpp"
#include "engine/watchdog.hpp"
#include "engine/world.hpp"
#include "text_matchers.hpp"

namespace ciranda {
namespace {

using testing::add_set;
using testing::Layout;
using testing::options_for;
using testing::request;
using testing::Watchdog;
using testing::World;
using testing::WorldOptions;

// After which ranks that stand have been told.
constexpr auto kLong = std::chrono::milliseconds(2500);

WorldOptions without_others(Layout layout, int size) {
  WorldOptions options = options_for(layout, size);
  options.config.stall_warning_seconds = 0;
  options.may_others_call = [](std::span<const WaitingThread> waiting, Asked) { return waiting.empty(); };
  return options;
}

class Summing {
 public:
  Summing(Engine& engine, std::string name, std::uint32_t process_set = 0, Operation::Callback callback = nullptr)
      : engine_(engine) {
    Request r = request(Collective::kAllreduce, std::move(name), DataType::kFloat32, {3}, values_.data());
    r.process_set = process_set;
    r.is_awaited = callback == nullptr;
    operation_ = submit_request(engine, std::move(r), std::move(callback));
  }
  Status wait(const Engine::Interrupted& interrupted = nullptr) { return engine_.wait(operation_, interrupted); }

 private:
  Engine& engine_;
  std::vector<float> values_ = {1, 2, 3};
  Engine::OperationPtr operation_;
};

Status sum_late(Engine& engine, const std::string& name) { return Summing(engine, name).wait(); }

class StandstillTest : public ::testing::TestWithParam<Layout> {};

TEST_P(StandstillTest, EndsWithAnErrorOnAllRanks) {
  const Watchdog watchdog("a standstill");
  World world(3, without_others(GetParam(), 3));
  world.run([](Engine& engine) {
    for (int times = 0; times < 3; ++times) {
      for (const char* name : {"a", "b"}) ASSERT_TRUE(sum_late(engine, name).ok());
    }
    const Status status = sum_late(engine, engine.rank() == 0 ? "a" : "b");
    EXPECT_EQ(status.kind(), ErrorKind::kMismatch);
    EXPECT_TRUE(contains(status.message(), "rank 0 waits for 'a'; ranks 1, 2 wait for 'b'."));
    const Status owed = sum_late(engine, engine.rank() == 0 ? "b" : "a");
    EXPECT_EQ(owed.kind(), ErrorKind::kMismatch);
    for (const char* name : {"a", "b"}) EXPECT_TRUE(sum_late(engine, name).ok()) << "calls are paired again";
  });
}

// Ranks 0 and 1 wait for each other in one set, until rank 2 has called in another, and a callback goes on.
TEST_P(StandstillTest, IsNoneWhileACallOfAnotherSetMayEnd) {
  const Watchdog watchdog("calls of two sets");
  World world(3, without_others(GetParam(), 3));
  world.run([](Engine& engine) {
    const std::uint32_t first = add_set(engine, {0, 1});
    const std::uint32_t second = add_set(engine, {0, 2});
    if (engine.rank() == 2) {
      std::this_thread::sleep_for(kLong);
      EXPECT_TRUE(Summing(engine, "s", second).wait().ok());
    } else if (engine.rank() == 1) {
      EXPECT_TRUE(Summing(engine, "y", first).wait().ok());
      EXPECT_TRUE(Summing(engine, "x", first).wait().ok());
    } else {
      const auto go_on = [&](const Operation&) { EXPECT_TRUE(Summing(engine, "y", first).wait().ok()); };
      Summing s(engine, "s", second, go_on);
      EXPECT_TRUE(Summing(engine, "x", first).wait().ok());
      EXPECT_TRUE(s.wait().ok());
    }
  });
}

// It has said that it stands, and unsaid it before the other stands.
TEST_P(StandstillTest, IsNoneOfARankThatHasGivenItsWaitUp) {
  const Watchdog watchdog("a wait that is given up");
  World world(2, without_others(GetParam(), 2));
  world.run([](Engine& engine) {
    if (engine.rank() == 1) {
      std::this_thread::sleep_for(kLong / 2);
      EXPECT_TRUE(sum_late(engine, "y").ok());
      EXPECT_TRUE(sum_late(engine, "x").ok());
      return;
    }
    Summing x(engine, "x");
    int n_asked = 0;
    EXPECT_EQ(x.wait([&n_asked] { return ++n_asked > 1; }).kind(), ErrorKind::kAborted);
    std::this_thread::sleep_for(kLong);
    EXPECT_TRUE(sum_late(engine, "y").ok());
    EXPECT_TRUE(x.wait().ok());
  });
}

TEST_P(StandstillTest, IsNoneWhileThreadsMayCall) {
  const Watchdog watchdog("another thread");
  WorldOptions options = without_others(GetParam(), 2);
  options.may_others_call = [](std::span<const WaitingThread> waiting, Asked) { return waiting.size() < 2; };
  World world(2, options);
  world.run([](Engine& engine) {
    std::thread other([&engine] {
      std::this_thread::sleep_for(engine.rank() == 0 ? kLong : kLong / 2);
      EXPECT_TRUE(sum_late(engine, "y").ok());
    });
    EXPECT_TRUE(sum_late(engine, "x").ok());
    other.join();
    // Now both wait in vain.
    const std::string rank = std::to_string(engine.rank());
    std::thread beside([&] { EXPECT_EQ(sum_late(engine, "beside " + rank).kind(), ErrorKind::kMismatch); });
    EXPECT_EQ(sum_late(engine, "own " + rank).kind(), ErrorKind::kMismatch);
    beside.join();
  });
}

// As those of TensorFlow, JAX and MXNet: no thread is in wait(), so the background thread looks.
TEST_P(StandstillTest, IsSeenWhereAllCallsEndByCallback) {
  const Watchdog watchdog("callbacks alone");
  WorldOptions options = without_others(GetParam(), 2);
  options.may_others_call = [](std::span<const WaitingThread>, Asked) { return false; };
  World world(2, options);
  world.run([](Engine& engine) {
    std::promise<Status> end;
    const Summing own(engine, engine.rank() == 0 ? "a" : "b", 0,
                      [&end](const Operation& done) { end.set_value(done.status()); });
    EXPECT_EQ(end.get_future().get().kind(), ErrorKind::kMismatch);
    EXPECT_EQ(sum_late(engine, engine.rank() == 0 ? "b" : "a").kind(), ErrorKind::kMismatch) << "what it owes";
    EXPECT_TRUE(sum_late(engine, "a").ok());
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, StandstillTest, ::testing::Values(Layout::kArena, Layout::kChannels),
                         [](const auto& layout) { return testing::to_string(layout.param); });

}  // namespace
}  // namespace ciranda
