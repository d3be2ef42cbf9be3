// What callbacks may do, and what they hold up: nothing, unless they are direct.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <latch>
#include <string>
#include <thread>

#include "engine/engine.hpp"
#include "engine/watchdog.hpp"
#include "engine/world.hpp"
#include "engine/worlds_test.hpp"
#include "text_matchers.hpp"

namespace ciranda {
namespace {

using testing::kLayouts;
using testing::request;
using testing::Watchdog;
using testing::World;

class CallbacksTest : public testing::WorldsTest {
 protected:
  int total() const { return size() * (size() + 1) / 2; }
};

Request sum(const std::string& name, std::int32_t& value) {
  return request(Collective::kAllreduce, name, DataType::kInt32, {}, &value);
}

TEST_P(CallbacksTest, OneThatBlocksHoldsUpNothing) {
  const Watchdog watchdog("a callback that blocks");
  World world(size(), options());
  world.run([&](Engine& engine) {
    std::latch has_begun(1);
    std::latch may_end(1);
    std::latch has_ended(1);
    std::latch others(20);
    std::int32_t first = engine.rank() + 1;
    const auto operation = submit_request(engine, sum("first", first), [&](const Operation&) {
      has_begun.count_down();
      may_end.wait();
      has_ended.count_down();
    });
    EXPECT_TRUE(engine.wait(operation).ok());
    has_begun.wait();
    std::array<std::int32_t, 20> values;
    values.fill(engine.rank() + 1);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::string name = "other" + std::to_string(i);
      static_cast<void>(submit_request(engine, sum(name, values[i]), [&](const Operation&) { others.count_down(); }));
    }
    others.wait();
    for (const std::int32_t value : values) EXPECT_EQ(value, total());
    may_end.count_down();
    has_ended.wait();
  });
}

// As deep as one likes: each callback submits, waits, and waits for the callback of what it has submitted.
TEST_P(CallbacksTest, TheyWaitForOtherCollectives) {
  const Watchdog watchdog("callbacks that wait");
  constexpr int kDepth = 12;
  World world(size(), options());
  world.run([&](Engine& engine) {
    std::array<std::int32_t, kDepth> values;
    values.fill(engine.rank() + 1);
    const std::function<void(std::size_t)> nest = [&](std::size_t depth) {
      if (depth == kDepth) return;
      std::latch is_called(1);
      const auto operation =
          submit_request(engine, sum("depth" + std::to_string(depth), values[depth]), [&](const Operation&) {
            nest(depth + 1);
            is_called.count_down();
          });
      EXPECT_TRUE(engine.wait(operation).ok());
      is_called.wait();
    };
    nest(0);
    for (const std::int32_t value : values) EXPECT_EQ(value, total());
  });
}

// The names are in another order on each rank, so all must be under way at once.
TEST_P(CallbacksTest, ManyWaitAtTheSameTime) {
  const Watchdog watchdog("many callbacks that wait");
  constexpr int kMany = 30;
  World world(size(), options());
  world.run([&](Engine& engine) {
    std::array<std::int32_t, kMany> begun{};
    std::array<std::int32_t, kMany> values;
    values.fill(engine.rank() + 1);
    std::latch done(kMany);
    for (int i = 0; i < kMany; ++i) {
      const auto k = static_cast<std::size_t>((i * 7 + engine.rank() * 11) % kMany);
      static_cast<void>(submit_request(engine, sum("begin" + std::to_string(k), begun[k]), [&, k](const Operation&) {
        EXPECT_TRUE(engine.wait(submit_request(engine, sum("end" + std::to_string(k), values[k]))).ok());
        done.count_down();
      }));
    }
    done.wait();
    for (const std::int32_t value : values) EXPECT_EQ(value, total());
  });
}

TEST_P(CallbacksTest, DirectOnesSubmitButDoNotWait) {
  const Watchdog watchdog("direct callbacks");
  World world(size(), options());
  ::testing::internal::CaptureStderr();
  world.run([&](Engine& engine) {
    std::int32_t first = engine.rank() + 1;
    std::int32_t second = engine.rank() + 1;
    Engine::OperationPtr submitted;
    Status waited;
    std::latch is_called(1);
    Request r = sum("first", first);
    r.calls_back_directly = true;
    static_cast<void>(submit_request(engine, std::move(r), [&](const Operation&) {
      submitted = submit_request(engine, sum("second", second));
      waited = engine.wait(submitted);
      engine.shutdown();
      is_called.count_down();
    }));
    is_called.wait();
    EXPECT_EQ(waited.kind(), ErrorKind::kInvalidArgument);
    EXPECT_TRUE(contains(waited.message(), "inside a direct callback")) << waited.message();
    EXPECT_TRUE(engine.wait(submitted).ok());
    EXPECT_EQ(second, total());
  });
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(contains(told, "to wait inside a direct callback")) << told;
  EXPECT_TRUE(contains(told, "to shut down inside a direct callback")) << told;
}

TEST_P(CallbacksTest, OneOfWhatIsRefusedRunsOnItsOwnThread) {
  World world(size(), options());
  std::int32_t value = 0;
  std::thread::id ran_on;
  ErrorKind kind{};
  std::latch is_called(1);
  Request wrong = sum("x", value);
  wrong.signature.tensors.front().shape = {-1};
  static_cast<void>(submit_request(world.engine(0), std::move(wrong), [&](const Operation& failed) {
    ran_on = std::this_thread::get_id();
    kind = failed.status().kind();
    is_called.count_down();
  }));
  is_called.wait();
  EXPECT_NE(ran_on, std::this_thread::get_id());
  EXPECT_EQ(kind, ErrorKind::kInvalidArgument);
}

TEST_P(CallbacksTest, AllHaveRunOnceWhenShutdownReturns) {
  const Watchdog watchdog("callbacks at shutdown");
  World world(size(), options());
  world.run([&](Engine& engine) {
    constexpr int kMany = 40;
    std::array<std::int32_t, kMany> values{};
    std::array<std::atomic<int>, kMany> n_calls{};
    for (std::size_t i = 0; i < kMany; ++i) {
      // Every other one is done, or not, when the first rank leaves; the rest cannot be.
      const std::string name =
          i % 2 == 0 ? "x" + std::to_string(i) : "of" + std::to_string(engine.rank()) + "." + std::to_string(i);
      static_cast<void>(submit_request(engine, sum(name, values[i]), [&, i, name](const Operation& done) {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        if (done.status().ok()) static_cast<void>(engine.wait(submit_request(engine, sum("after" + name, values[i]))));
        ++n_calls[i];
      }));
    }
    engine.shutdown();
    for (const std::atomic<int>& n : n_calls) EXPECT_EQ(n, 1);
  });
}

TEST_P(CallbacksTest, OneMayShutDown) {
  const Watchdog watchdog("shutdown in a callback");
  for (int i = 0; i < 20; ++i) {
    World world(size(), options());
    world.run([&](Engine& engine) {
      std::int32_t alone = 1;
      std::int32_t together = engine.rank() + 1;
      std::atomic<int> n_called{0};
      std::latch is_over(1);
      const auto pending = submit_request(engine, sum("of" + std::to_string(engine.rank()), alone),
                                          [&](const Operation&) { ++n_called; });
      static_cast<void>(submit_request(engine, sum("together", together), [&](const Operation&) {
        engine.shutdown();
        EXPECT_EQ(n_called, size() == 1 ? n_called.load() : 1);
        is_over.count_down();
      }));
      if (size() > 1) {
        EXPECT_EQ(engine.wait(pending).kind(), ErrorKind::kAborted);
      }
      is_over.wait();
    });
  }
}

// A callback that ends its engine, or leaves it to another thread that does so at the same time.
TEST_P(CallbacksTest, OneMayShutDownWhileAnotherThreadDoes) {
  const Watchdog watchdog("shutdown in a callback and elsewhere");
  for (int i = 0; i < 50; ++i) {
    World world(size(), options());
    world.run([&](Engine& engine) {
      std::int32_t value = 1;
      std::latch is_called(1);
      static_cast<void>(submit_request(engine, sum("x", value), [&](const Operation&) {
        is_called.count_down();
        engine.shutdown();
      }));
      is_called.wait();
      engine.shutdown();
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, CallbacksTest,
                         ::testing::Combine(::testing::Values(1, 2, 4), ::testing::ValuesIn(kLayouts)),
                         [](const auto& test) {
                           return std::to_string(std::get<0>(test.param)) + "ranks" +
                                  to_string(std::get<1>(test.param));
                         });

}  // namespace
}  // namespace ciranda
