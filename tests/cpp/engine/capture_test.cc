// Streams whose work is captured into a CUDA graph, by the fake driver: calls on them are refused, and nothing that the
// engine does spoils a capture, of this stream or another one.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/driver_api.hpp"
#include "engine/fake_driver.hpp"
#include "engine/graphs.hpp"
#include "engine/guarded.hpp"
#include "engine/homes.hpp"
#include "engine/own_program.hpp"
#include "engine/requests.hpp"
#include "engine/watchdog.hpp"
#include "engine/worlds_test.hpp"

#ifndef CIRANDA_SANITIZED

namespace ciranda {
namespace {

using cuda::CUresult;
using cuda::CUstream;
using testing::AtHome;
using testing::await_all;
using testing::Capture;
using testing::cuda_home;
using testing::Guarded;
using testing::Home;
using testing::Homes;
using testing::Layout;
using testing::of_fake;
using testing::options_for;
using testing::request;
using testing::wait_at_home;
using testing::Watchdog;
using testing::World;
using testing::WorldOptions;

// By each way, on tensors of two ranks.
void expect_by_each_way(const std::function<void(Engine&)>& scenario) {
  for (const std::string way : {"staged", "peer", "nccl"}) {
    SCOPED_TRACE(way);
    testing::expect_in_own_program([&] {
      const Watchdog watchdog("captures");
      WorldOptions options = options_for(Layout::kArena, 2);
      options.homes = way == "nccl" ? Homes::kCudaNccl : way == "peer" ? Homes::kCuda : Homes::kCudaStaged;
      options.config.gpu_way = way;
      World world(2, options);
      world.run(scenario);
    });
  }
}

class Sum {
 public:
  explicit Sum(std::string name) : name_(std::move(name)) {}
  Engine::OperationPtr begin(Engine& engine) {
    return submit_request(engine, request(Collective::kAllreduce, name_, DataType::kFloat32, {1000}, tensor_.data()));
  }
  void expect_done() const {
    const std::vector<float> expected(1000, 4);
    EXPECT_TRUE(tensor_.holds(std::as_bytes(std::span(expected)))) << name_;
  }

 private:
  const std::string name_;
  const std::vector<float> values_ = std::vector<float>(1000, 2);
  Guarded tensor_{std::as_bytes(std::span(values_)), Guarded::kAligned};
};

// By NCCL because ranks have not made it before.
TEST(CaptureDeathTest, CallsOnACapturedStreamAreRefusedByName) {
  expect_by_each_way([](Engine& engine) {
    Sum before("before"), refused("refused"), after("after");
    EXPECT_TRUE(wait_at_home(engine, before.begin(engine)).ok());
    before.expect_done();
    await_all(engine);
    {
      const Capture capture(testing::home().place.queue);
      const Status status = engine.wait(refused.begin(engine));
      EXPECT_EQ(status.kind(), ErrorKind::kInvalidArgument);
      EXPECT_EQ(status.message().find("allreduce 'refused': its stream is being captured into a CUDA graph"), 0U)
          << status.message();
    }
    await_all(engine);
    EXPECT_TRUE(wait_at_home(engine, after.begin(engine)).ok());
    after.expect_done();
  });
}

// Nor does the end of an earlier call, whose result's memory is dropped meanwhile.
TEST(CaptureDeathTest, CallsOnOtherStreamsSpoilNoCapture) {
  expect_by_each_way([](Engine& engine) {
    Sum first("first"), second("second");
    const testing::Home beside = cuda_home(engine.rank() + 2, true, testing::home().place.index);
    std::vector<float> rows(10, 1);
    Guarded input(std::as_bytes(std::span(rows)), Guarded::kAligned);
    EXPECT_TRUE(wait_at_home(engine, first.begin(engine)).ok());
    const auto gathered = [&] {
      Request call = request(Collective::kAllgather, "rows", DataType::kFloat32, {10}, input.data());
      call.memory.front().output = nullptr;
      return submit_request(engine, std::move(call));
    };
    EXPECT_TRUE(wait_at_home(engine, gathered()).ok());
    await_all(engine);
    {
      const Capture capture(beside.place.queue);
      EXPECT_TRUE(engine.wait(second.begin(engine)).ok());
      EXPECT_TRUE(engine.wait(gathered()).ok());
    }
    await_all(engine);
    first.expect_done();
    second.expect_done();
  });
}

// Results are memory of the engine's, which is dropped while this stream is captured.
void drop_results_during_captures(Engine& engine, void* captured) {
  std::vector<float> rows(10, 1);
  Guarded input(std::as_bytes(std::span(rows)), Guarded::kAligned);
  for (int step = 0; step < 2; ++step) {
    Request call = request(Collective::kAllgather, "rows", DataType::kFloat32, {10}, input.data());
    call.memory.front().output = nullptr;
    auto gathered = submit_request(engine, std::move(call));
    EXPECT_TRUE(wait_at_home(engine, gathered).ok());
    await_all(engine);
    {
      const Capture capture(captured);
      gathered = nullptr;
      await_all(engine);
    }
    await_all(engine);
  }
}

TEST(CaptureDeathTest, AResultMayBeDroppedWhileItsStreamIsCaptured) {
  expect_by_each_way([](Engine& engine) { drop_results_during_captures(engine, testing::home().place.queue); });
}

// The legacy default stream comes after all blocking streams.
TEST(CaptureDeathTest, TheDefaultStreamIsRefusedWhileABlockingStreamIsCaptured) {
  expect_by_each_way([](Engine& engine) {
    Home at = testing::home();
    at.place.queue = nullptr;
    const AtHome home(at);
    Sum refused("refused"), after("after");
    CUstream blocking = nullptr;
    EXPECT_EQ(of_fake<CUresult(CUstream*, unsigned, int)>("cuStreamCreateWithPriority")(&blocking, 0, 0),
              CUresult::kSuccess);
    drop_results_during_captures(engine, blocking);
    await_all(engine);
    {
      const Capture capture(blocking);
      await_all(engine);
      const Status status = engine.wait(refused.begin(engine));
      EXPECT_EQ(status.kind(), ErrorKind::kInvalidArgument);
      EXPECT_NE(status.message().find("or is the default stream while one that it waits for is"), std::string::npos)
          << status.message();
      await_all(engine);
    }
    await_all(engine);
    EXPECT_TRUE(wait_at_home(engine, after.begin(engine)).ok());
    after.expect_done();
  });
}

}  // namespace
}  // namespace ciranda

#endif  // CIRANDA_SANITIZED
