// A rank that never comes, or stops in the middle, is named after a settable time, and later what waits for it fails.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <latch>
#include <thread>

#include "engine/engine.hpp"
#include "engine/one_is_late.hpp"
#include "engine/watchdog.hpp"
#include "engine/world.hpp"
#include "text_matchers.hpp"

namespace ciranda {
namespace {

using testing::end_stalls_soon;
using testing::OneIsLate;
using testing::request;
using testing::Watchdog;
using testing::World;
using testing::WorldOptions;

WorldOptions impatient(bool with_arena) {
  WorldOptions options;
  options.fabric.with_arena = with_arena;
  options.fabric.slot_bytes = 4096;
  options.fabric.ring_bytes = 4096;
  options.config.slot_bytes = 4096;
  end_stalls_soon(options.config);
  return options;
}

// On a busy machine a rank may be so late to any call that this stalls. Such a call is made again.
template <typename Call>
Status until_in_time(const Call& call) {
  Status status = call();
  while (status.kind() == ErrorKind::kTimeout) status = call();
  return status;
}

// What a busy machine may spoil: calls before the stall that the test is about stall as well, where no call can be made
// again; or so much time passes at once that the stall ends before it has been told of.
class Timing {
 public:
  explicit Timing(bool is_last_try) : is_last_try_(is_last_try) {}

  void expect_ok(const Status& status) {
    EXPECT_TRUE(status.ok() || (status.kind() == ErrorKind::kTimeout && !is_last_try_)) << status.message();
    if (!status.ok()) was_in_time_ = false;
  }
  bool is_spoilt(const std::string& printed, const std::string& told) const {
    return !is_last_try_ && (!was_in_time_ || !contains(printed, told));
  }

 private:
  const bool is_last_try_;
  std::atomic<bool> was_in_time_{true};
};

// Calls `scenario(timing)`, each time with a world of its own, until it says that it was not spoilt. Something wrong
// spoils every try.
template <typename Scenario>
void run_until_unspoilt(const Scenario& scenario) {
  constexpr int kTries = 20;
  bool is_spoilt = true;
  for (int i = 1; i <= kTries && is_spoilt; ++i) {
    Timing timing(i == kTries);
    is_spoilt = scenario(timing);
  }
}

// Carries the request out, and runs the progress loop no further until it may go on.
Status stop_when_done(Engine& engine, Request r, std::latch& has_stopped, std::latch& goes_on) {
  r.calls_back_directly = true;
  const auto operation = submit_request(engine, std::move(r), [&](const Operation&) {
    has_stopped.count_down();
    goes_on.wait();
  });
  return engine.wait(operation);
}

class StallTest : public ::testing::TestWithParam<bool> {
 protected:
  WorldOptions options() const { return impatient(GetParam()); }
};

TEST_P(StallTest, AMissingRankIsNamedThenTheTensorFailsAndTheEngineGoesOn) {
  for (int missing = 0; missing < 3; ++missing) {
    const Watchdog watchdog("missing rank " + std::to_string(missing));
    run_until_unspoilt([&](const Timing& timing) {
      World world(3, options());
      ::testing::internal::CaptureStderr();
      std::latch others_have_failed(2);
      world.run([&](Engine& engine) {
        float value = 1;
        const auto reduce = [&](const std::string& name) {
          return engine.wait(
              submit_request(engine, request(Collective::kAllreduce, name, DataType::kFloat32, {1}, &value)));
        };
        ASSERT_TRUE(until_in_time([&] { return reduce("before"); }).ok());
        if (engine.rank() == missing) others_have_failed.wait();
        const Status status = reduce("rare");  // the late rank hears the same
        EXPECT_EQ(status.kind(), ErrorKind::kTimeout);
        EXPECT_TRUE(contains(status.message(), "'rare'")) << status.message();
        EXPECT_TRUE(contains(status.message(), "rank " + std::to_string(missing) + " (host localhost)"))
            << status.message();
        EXPECT_TRUE(contains(status.message(), "last submitted 'before'")) << status.message();
        if (engine.rank() != missing) others_have_failed.count_down();
        const Status after = until_in_time([&] { return reduce("rare"); });
        EXPECT_TRUE(after.ok()) << after.message();
      });
      const std::string printed = ::testing::internal::GetCapturedStderr();
      if (timing.is_spoilt(printed, "'rare' has waited")) return true;
      EXPECT_TRUE(contains(printed, "'rare' has waited")) << printed;
      EXPECT_TRUE(contains(printed, "rank " + std::to_string(missing) + " (host localhost)")) << printed;
      return false;
    });
  }
}

TEST_P(StallTest, ZeroMeansNever) {
  const Watchdog watchdog("patience");
  WorldOptions patient = options();
  patient.config.stall_warning_seconds = 0;
  patient.config.stall_shutdown_seconds = 0;
  World world(2, patient);
  OneIsLate late(2);
  ::testing::internal::CaptureStderr();
  world.run([&](Engine& engine) {
    float value = 1;
    if (engine.rank() == 1) {
      late.wait_for_others(0);
      // Not waiting for anything but time to pass: longer than what the other tests call a stall.
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    const auto operation =
        submit_request(engine, request(Collective::kAllreduce, "late", DataType::kFloat32, {1}, &value));
    EXPECT_TRUE((engine.rank() == 1 ? engine.wait(operation) : late.wait(engine, operation)).ok());
  });
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

// In these tests a direct callback blocks, which it must not: it stops its rank as SIGSTOP would. Its latches outlive
// the world, whose threads may still be waking from them.

TEST_P(StallTest, ACoordinatorThatStopsIsNamed) {
  const Watchdog watchdog("stopped coordinator");
  run_until_unspoilt([&](Timing& timing) {
    std::latch has_stopped(1);
    std::latch goes_on(1);
    World world(2, options());
    ::testing::internal::CaptureStderr();
    Status status;
    world.run([&](Engine& engine) {
      float value = 1;
      auto first = request(Collective::kAllreduce, "first", DataType::kFloat32, {1}, &value);
      if (engine.rank() == 0) {
        timing.expect_ok(stop_when_done(engine, std::move(first), has_stopped, goes_on));
        return;
      }
      timing.expect_ok(engine.wait(submit_request(engine, std::move(first))));
      has_stopped.wait();
      status =
          engine.wait(submit_request(engine, request(Collective::kAllreduce, "next", DataType::kFloat32, {1}, &value)));
      goes_on.count_down();
    });
    const std::string printed = ::testing::internal::GetCapturedStderr();
    if (timing.is_spoilt(printed, "rank 0 (host localhost")) return true;
    EXPECT_EQ(status.kind(), ErrorKind::kTimeout) << status.message();
    EXPECT_TRUE(contains(status.message(), "rank 0 (host localhost")) << status.message();
    EXPECT_TRUE(contains(printed, "rank 0 (host localhost")) << printed;
    return false;
  });
}

// The coordinator has answered long since, and answers still: but not by a way that leads around the relay.
TEST(StallOfARelay, IsNamedToThoseWhoHearThroughIt) {
  const Watchdog watchdog("stopped relay");
  run_until_unspoilt([&](Timing& timing) {
    std::latch has_stopped(1);
    std::latch goes_on(1);
    WorldOptions options = impatient(true);
    options.fabric.hosts = {"x", "y", "y"};
    options.config.relays = true;
    World world(3, options);
    ::testing::internal::CaptureStderr();
    std::array<Status, 3> statuses;
    world.run([&](Engine& engine) {
      float value = 1;
      auto first = request(Collective::kAllreduce, "first", DataType::kFloat32, {1}, &value);
      if (engine.rank() == 1) {
        timing.expect_ok(stop_when_done(engine, std::move(first), has_stopped, goes_on));
        return;
      }
      timing.expect_ok(engine.wait(submit_request(engine, std::move(first))));
      has_stopped.wait();
      auto& status = statuses[static_cast<std::size_t>(engine.rank())];
      status =
          engine.wait(submit_request(engine, request(Collective::kAllreduce, "next", DataType::kFloat32, {1}, &value)));
      if (engine.rank() == 2) goes_on.count_down();
    });
    const std::string printed = ::testing::internal::GetCapturedStderr();
    if (timing.is_spoilt(printed, "'next' has waited")) return true;
    EXPECT_EQ(statuses[0].kind(), ErrorKind::kTimeout) << statuses[0].message();
    EXPECT_EQ(statuses[2].kind(), ErrorKind::kTimeout) << statuses[2].message();
    const std::string named = "through which the log comes, has not answered for";
    EXPECT_TRUE(contains(statuses[2].message(), "rank 1 (host y")) << statuses[2].message();
    EXPECT_TRUE(contains(statuses[2].message(), named)) << statuses[2].message();
    EXPECT_TRUE(contains(printed, named)) << printed;
    EXPECT_TRUE(contains(printed, "'next' has waited")) << printed;
    return false;
  });
}

// Both ranks have agreed on "small" and "large" at once. Rank 1 stops when it has carried out the first of them.
TEST_P(StallTest, ARankThatStopsInTheMiddleOfTheDataIsNamed) {
  const Watchdog watchdog("stopped in the middle");
  run_until_unspoilt([&](Timing& timing) {
    std::latch rank_0_has_submitted(1);
    std::latch rank_0_has_failed(1);
    World world(2, options());
    ::testing::internal::CaptureStderr();
    std::array<Status, 2> statuses;
    world.run([&](Engine& engine) {
      std::array<float, 2> small{1, 1};
      std::vector<std::int64_t> large(50'000, 1);
      const auto go = [&] {
        Request r = request(Collective::kAllreduce, "go", DataType::kFloat32, {1}, &small[0]);
        r.calls_back_directly = true;
        return r;
      };
      const auto submit_small = [&](Operation::Callback callback) {
        Request r = request(Collective::kAllreduce, "small", DataType::kFloat32, {1}, &small[1]);
        r.calls_back_directly = true;
        return submit_request(engine, std::move(r), std::move(callback));
      };
      const auto submit_large = [&] {
        return submit_request(engine,
                              request(Collective::kAllreduce, "large", DataType::kInt64, {50'000}, large.data()));
      };
      if (engine.rank() == 0) {
        const auto first = submit_small(nullptr);
        const auto operation = submit_large();
        rank_0_has_submitted.count_down();
        timing.expect_ok(engine.wait(submit_request(engine, go())));
        timing.expect_ok(engine.wait(first));
        statuses[0] = engine.wait(operation);
        rank_0_has_failed.count_down();
      } else {
        rank_0_has_submitted.wait();
        Engine::OperationPtr operation;
        std::latch has_submitted(1);
        // What a callback submits is taken in by one iteration, and so travels together.
        static_cast<void>(submit_request(engine, go(), [&](const Operation&) {
          static_cast<void>(submit_small([&](const Operation&) { rank_0_has_failed.wait(); }));
          operation = submit_large();
          has_submitted.count_down();
        }));
        has_submitted.wait();
        statuses[1] = engine.wait(operation);
      }
    });
    const std::string printed = ::testing::internal::GetCapturedStderr();
    if (timing.is_spoilt(printed, "allreduce 'large' began on all ranks")) return true;
    for (const Status& status : statuses) {
      EXPECT_EQ(status.kind(), ErrorKind::kTimeout) << status.message();
      EXPECT_TRUE(contains(status.message(), "allreduce 'large' began on all ranks")) << status.message();
      EXPECT_TRUE(contains(status.message(), "rank 1 (host localhost")) << status.message();
    }
    EXPECT_TRUE(contains(printed, "allreduce 'large' began on all ranks")) << printed;
    return false;
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, StallTest, ::testing::Bool(),
                         [](const auto& test) { return std::string(test.param ? "Arena" : "Channels"); });

}  // namespace
}  // namespace ciranda
