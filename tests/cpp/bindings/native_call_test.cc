// Calls of a framework end exactly once, whatever happens, and hold its tensors until then.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <ciranda/native/call.hpp>
#include <cstdint>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "capi/world_of_one.hpp"
#include "capi/world_of_threads.hpp"

namespace ciranda::native {
namespace {

// What a test hears of a call.
struct Heard {
  std::promise<ciranda_status> status;
  std::string message;
  Kept operation;
  std::atomic<int> n_ends{0};
  std::atomic<bool> is_let_go{false};
};

// A call as a framework would have it: a tensor, and who is told.
struct Held {
  explicit Held(std::shared_ptr<Heard> by, bool throws_at_end = false) : heard(std::move(by)), throws(throws_at_end) {}
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() { heard->is_let_go = true; }

  std::shared_ptr<Heard> heard;
  bool throws;
  std::array<float, 3> values{1, 2, 3};
  std::int64_t rows = 3;

  ciranda_tensor tensor() {
    return {values.data(), values.data(), &rows, 1, CIRANDA_FLOAT32, nullptr, 0, 0, 0, nullptr};
  }

  void end(const Outcome& outcome) {
    ++heard->n_ends;
    heard->message = outcome.message;
    heard->operation = Kept(outcome);
    heard->status.set_value(outcome.status);
    if (throws) throw std::runtime_error("what a framework may do");
  }
};

std::shared_ptr<Heard> start(ciranda_context* context, ciranda_request request, bool throws = false) {
  auto heard = std::make_shared<Heard>();
  auto held = std::make_unique<Held>(heard, throws);
  const ciranda_tensor tensor = held->tensor();
  request.tensors = &tensor;
  request.tensors_count = 1;
  submit(context, std::move(held), request);
  return heard;
}

ciranda_request named(const char* name, ciranda_collective collective = CIRANDA_ALLREDUCE) {
  ciranda_request request = CIRANDA_REQUEST_INIT;
  request.name = name;
  request.collective = collective;
  return request;
}

// The last of a call happens after who waits for it goes on.
void expect_ended(Heard& heard, ciranda_status status) {
  EXPECT_EQ(heard.status.get_future().get(), status);
  while (!heard.is_let_go || live_calls() > 0) std::this_thread::yield();
  EXPECT_EQ(heard.n_ends, 1);
}

using NativeCall = capi::WorldOfOne;

TEST_F(NativeCall, EndsWellWithItsOutputs) {
  const auto reduced = start(world_, named("sum"));
  expect_ended(*reduced, CIRANDA_OK);
  EXPECT_EQ(reduced->message, "");
  const auto gathered = start(world_, named("gather", CIRANDA_ALLGATHER));
  expect_ended(*gathered, CIRANDA_OK);
  const ciranda_output output = gathered->operation.output(0);  // the call has let go of it
  ASSERT_EQ(output.ndim, 1);
  EXPECT_EQ(output.shape[0], 3);
  EXPECT_EQ(static_cast<const float*>(output.data)[2], 3.0F);
  EXPECT_EQ(gathered->operation.output(1).data, nullptr);
  EXPECT_EQ(Kept().output(0).data, nullptr);
}

TEST_F(NativeCall, FindsTheWorldOfTheProcess) {
  const Context context;
  EXPECT_EQ(context.get(), world_);
  auto heard = std::make_shared<Heard>();
  auto held = std::make_unique<Held>(heard);
  const ciranda_tensor tensor = held->tensor();
  ciranda_request request = named("sum");
  request.tensors = &tensor;
  request.tensors_count = 1;
  submit(std::move(held), request);
  expect_ended(*heard, CIRANDA_OK);
}

TEST_F(NativeCall, WhatIsWrongWithARequestComesToTheSamePlace) {
  ciranda_request wrong = named("wrong", CIRANDA_BROADCAST);
  wrong.root = 7;
  const auto refused = start(world_, wrong);
  expect_ended(*refused, CIRANDA_INVALID_ARGUMENT);
  EXPECT_NE(refused->message.find("root_rank 7"), std::string::npos) << refused->message;
  wrong.op = 77;  // which the engine cannot even read
  const auto unread = start(world_, wrong);
  expect_ended(*unread, CIRANDA_INVALID_ARGUMENT);
  EXPECT_NE(unread->message, "");
}

TEST_F(NativeCall, ThrowingIsToldAndGoesNoFurther) {
  const std::int64_t before = counts.thrown;
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) expect_ended(*start(world_, named("sum"), true), CIRANDA_OK);
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_EQ(counts.thrown - before, 3);
  EXPECT_NE(told.find("what a framework may do"), std::string::npos) << told;
  expect_ended(*start(world_, named("sum")), CIRANDA_OK);
}

TEST_F(NativeCall, AThousandLeaveNothing) {
  std::vector<std::shared_ptr<Heard>> all;
  for (int i = 0; i < 1000; ++i) all.push_back(start(world_, named(("sum." + std::to_string(i)).c_str())));
  for (const auto& each : all) expect_ended(*each, CIRANDA_OK);
  EXPECT_EQ(live_calls(), 0);
}

TEST(NativeCallAlone, WithoutAWorldSaysWhatToDo) {
  const auto heard = start(nullptr, named("sum"));
  expect_ended(*heard, CIRANDA_INVALID_ARGUMENT);
  EXPECT_EQ(heard->message, kNotInitialized);
}

TEST(NativeCallAlone, PendingOnesEndWhenTheWorldDoes) {
  capi::in_a_world(2, [](ciranda_context*& world) {
    if (ciranda_rank(world) == 1) return;
    ciranda_context_retain(world);
    std::vector<std::shared_ptr<Heard>> all;
    for (int i = 0; i < 100; ++i) all.push_back(start(world, named(("lonely." + std::to_string(i)).c_str())));
    ciranda_shutdown(world);
    for (const auto& each : all) expect_ended(*each, CIRANDA_ABORTED);
    expect_ended(*start(world, named("late")), CIRANDA_ABORTED);
    ciranda_context_release(world);
    world = nullptr;
  });
  EXPECT_EQ(live_calls(), 0);
}

}  // namespace
}  // namespace ciranda::native
