// Callbacks over the C ABI: what they may do, and what becomes of the process that they end or fork.
#include <ciranda/ciranda.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <latch>
#include <stdexcept>
#include <string>
#include <utility>

#include "capi/world_of_one.hpp"
#include "capi/world_of_threads.hpp"

namespace ciranda::capi {
namespace {

// What it is given, as callback and user_data.
using Called = std::function<void(const ciranda_operation*)>;
void call(const ciranda_operation* operation, void* called) { (*static_cast<const Called*>(called))(operation); }

// One float, which outlives the request.
class Value {
 public:
  ciranda_request request(const char* name, const Called* called, std::uint32_t flags = 0) const {
    ciranda_request request = CIRANDA_REQUEST_INIT;
    request.name = name;
    request.tensors = &tensor_;
    request.tensors_count = 1;
    request.flags = flags;
    if (called != nullptr) {
      request.callback = call;
      request.user_data = const_cast<Called*>(called);
    }
    return request;
  }

 private:
  float value_ = 1;
  ciranda_tensor tensor_{&value_, &value_, nullptr, 0, CIRANDA_FLOAT32, nullptr, 0, 0, 0, nullptr};
};

TEST(Callbacks, WaitForOtherCollectives) {
  in_a_world(2, [](ciranda_context*& world) {
    const Value outer;
    const Value inner;
    std::latch is_done(1);
    ciranda_status inner_status = CIRANDA_PENDING;
    const Called waits = [&](const ciranda_operation*) {
      const ciranda_request request = inner.request("inner", nullptr);
      inner_status = ciranda_run(world, &request, nullptr);
      is_done.count_down();
    };
    const ciranda_request request = outer.request("outer", &waits);
    ASSERT_EQ(ciranda_submit(world, &request, nullptr), CIRANDA_OK);
    is_done.wait();
    EXPECT_EQ(inner_status, CIRANDA_OK);
  });
}

TEST(Callbacks, MayBeAskedForAfterAWait) {
  in_a_world(2, [](ciranda_context*& world) {
    const Value value;
    const ciranda_request go = value.request("go", nullptr);
    const ciranda_request request = value.request("late", nullptr, CIRANDA_REQUEST_AWAITED);
    const bool is_first = ciranda_rank(world) == 0;  // the other asks without a wait
    const auto meet = [&] { EXPECT_EQ(ciranda_run(world, &go, nullptr), CIRANDA_OK); };
    if (!is_first) meet();
    ciranda_operation* operation = nullptr;
    ASSERT_EQ(ciranda_submit(world, &request, &operation), CIRANDA_OK);
    const ciranda_status waited = is_first ? ciranda_wait_for(operation, 0.001) : CIRANDA_TIMEOUT;
    EXPECT_EQ(waited, CIRANDA_TIMEOUT);
    std::latch is_called(1);
    std::latch is_called_again(1);
    ciranda_status refused = CIRANDA_OK;
    const Called called = [&](const ciranda_operation* done) {
      refused = ciranda_operation_call_back(const_cast<ciranda_operation*>(done), call, nullptr);
      is_called.count_down();
    };
    const Called called_again = [&](const ciranda_operation* done) {
      EXPECT_EQ(ciranda_operation_status(done), CIRANDA_OK);
      is_called_again.count_down();
    };
    EXPECT_EQ(ciranda_operation_call_back(operation, call, const_cast<Called*>(&called)), CIRANDA_OK);
    if (is_first) meet();
    is_called.wait();
    EXPECT_EQ(refused, CIRANDA_INVALID_ARGUMENT) << "a callback's own handle goes when it returns";
    EXPECT_EQ(ciranda_operation_call_back(operation, call, const_cast<Called*>(&called_again)), CIRANDA_OK);
    ciranda_operation_release(operation);
    is_called_again.wait();
  });
  EXPECT_EQ(ciranda_operation_call_back(nullptr, call, nullptr), CIRANDA_INVALID_ARGUMENT);
}

TEST_F(WorldOfOne, ADirectCallbackMayNeitherWaitNorShutDown) {
  const Value outer;
  const Value inner;
  std::latch is_done(1);
  std::string message;
  ::testing::internal::CaptureStderr();
  const Called wants = [&](const ciranda_operation*) {
    const ciranda_request request = inner.request("inner", nullptr);
    ciranda_operation* operation = nullptr;
    EXPECT_EQ(ciranda_run(world_, &request, &operation), CIRANDA_INVALID_ARGUMENT);
    message = ciranda_operation_message(operation);
    ciranda_operation_release(operation);
    EXPECT_EQ(ciranda_submit(world_, &request, &operation), CIRANDA_OK);
    EXPECT_EQ(ciranda_wait(operation), CIRANDA_INVALID_ARGUMENT);
    EXPECT_EQ(ciranda_wait_interruptible(operation, nullptr, nullptr), CIRANDA_INVALID_ARGUMENT);
    ciranda_operation_release(operation);
    EXPECT_EQ(ciranda_shutdown(world_), CIRANDA_INVALID_ARGUMENT);
    is_done.count_down();
  };
  const ciranda_request request = outer.request("outer", &wants, CIRANDA_REQUEST_DIRECT_CALLBACK);
  ASSERT_EQ(ciranda_submit(world_, &request, nullptr), CIRANDA_OK);
  is_done.wait();
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(message.find("to run a request inside a direct callback"), std::string::npos) << message;
  EXPECT_NE(told.find("to wait inside a direct callback"), std::string::npos) << told;
  EXPECT_NE(told.find("to shut down inside a direct callback"), std::string::npos) << told;
  const ciranda_request again = inner.request("again", nullptr);
  EXPECT_EQ(ciranda_run(world_, &again, nullptr), CIRANDA_OK) << "the world goes on";
}

TEST_F(WorldOfOne, ACallbackMayShutDown) {
  const Value value;
  std::latch is_done(1);
  ciranda_context* const world = world_;
  world_ = nullptr;
  const Called shuts_down = [&](const ciranda_operation*) {
    EXPECT_EQ(ciranda_shutdown(world), CIRANDA_OK);
    is_done.count_down();
  };
  const ciranda_request request = value.request("x", &shuts_down);
  ASSERT_EQ(ciranda_submit(world, &request, nullptr), CIRANDA_OK);
  is_done.wait();
}

// Ends the world, after which every callback has run.
void throw_in_callback(ciranda_context*& world, std::uint32_t flags) {
  const Value value;
  ::testing::internal::CaptureStderr();
  std::atomic<int> n_calls{0};
  const Called throws = [&](const ciranda_operation*) {
    ++n_calls;
    throw std::runtime_error("a mishap");
  };
  const ciranda_request request = value.request("x", &throws, flags);
  ciranda_operation* operation = nullptr;
  ASSERT_EQ(ciranda_submit(world, &request, &operation), CIRANDA_OK);
  EXPECT_EQ(ciranda_wait(operation), CIRANDA_OK);
  ciranda_operation_release(operation);
  std::latch is_later(1);
  const Called later = [&](const ciranda_operation*) { is_later.count_down(); };
  const ciranda_request next = value.request("y", &later, flags);
  ASSERT_EQ(ciranda_submit(world, &next, nullptr), CIRANDA_OK);
  is_later.wait();
  EXPECT_EQ(ciranda_shutdown(std::exchange(world, nullptr)), CIRANDA_OK);
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(told.find("threw a mishap"), std::string::npos) << told;
  EXPECT_EQ(n_calls, 1);
}

TEST_F(WorldOfOne, WhatACallbackThrowsGoesNoFurther) { throw_in_callback(world_, 0); }

TEST_F(WorldOfOne, WhatADirectCallbackThrowsGoesNoFurther) {
  throw_in_callback(world_, CIRANDA_REQUEST_DIRECT_CALLBACK);
}

void exit_in_callback(std::uint32_t flags) {
  ciranda_context* world = nullptr;
  const ciranda_options options = alone();
  if (ciranda_init(&options, &world, nullptr, 0) != CIRANDA_OK) std::_Exit(1);
  static const Value value;
  static const Called exits = [](const ciranda_operation*) { std::exit(3); };
  const ciranda_request request = value.request("x", &exits, flags);
  if (ciranda_submit(world, &request, nullptr) != CIRANDA_OK) std::_Exit(2);
  while (true) pause();
}

TEST(CallbacksDeathTest, MayExit) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_in_callback(0), ::testing::ExitedWithCode(3), "");
  EXPECT_EXIT(exit_in_callback(CIRANDA_REQUEST_DIRECT_CALLBACK), ::testing::ExitedWithCode(3), "");
}

TEST_F(WorldOfOne, ACallbackMayFork) {
  const Value value;
  std::latch is_done(1);
  int status = -1;
  const Called forks = [&](const ciranda_operation*) {
    const pid_t child = fork();
    if (child == 0) _exit(7);
    waitpid(child, &status, 0);
    is_done.count_down();
  };
  const ciranda_request request = value.request("x", &forks);
  ASSERT_EQ(ciranda_submit(world_, &request, nullptr), CIRANDA_OK);
  is_done.wait();
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

}  // namespace
}  // namespace ciranda::capi
