// What bindings of frameworks need besides: deadlines, handles that outlive a callback, requests that need all ranks,
// sets that only their ranks form, memory that ranks share, and who asked.
#include <ciranda/ciranda.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <future>
#include <limits>
#include <string>
#include <vector>

#include "capi/world_of_threads.hpp"

namespace ciranda::capi {
namespace {

ciranda_request request_for(const ciranda_tensor& tensor, const char* name) {
  ciranda_request request = CIRANDA_REQUEST_INIT;
  request.name = name;
  request.tensors = &tensor;
  request.tensors_count = 1;
  return request;
}

// Its status, and message if it fails.
std::pair<ciranda_status, std::string> end_of(ciranda_operation* operation) {
  const ciranda_status status = ciranda_wait(operation);
  std::string message = ciranda_operation_message(operation);
  ciranda_operation_release(operation);
  return {status, std::move(message)};
}

TEST(BesidePython, AWaitMayHaveADeadline) {
  std::atomic<bool> is_late{false};
  in_a_world(2, [&](ciranda_context*& world) {
    const bool is_first = ciranda_rank(world) == 0;
    while (!is_first && !is_late) std::this_thread::yield();
    float value = 1;
    const ciranda_tensor tensor{&value, &value, nullptr, 0, CIRANDA_FLOAT32, nullptr, 0, 0, 0, nullptr};
    const ciranda_request request = request_for(tensor, "late");
    ciranda_operation* operation = nullptr;
    ASSERT_EQ(ciranda_submit(world, &request, &operation), CIRANDA_OK);
    if (is_first) {
      EXPECT_EQ(ciranda_wait_for(operation, 0.01), CIRANDA_TIMEOUT);
      EXPECT_EQ(ciranda_wait_for(operation, std::numeric_limits<double>::quiet_NaN()), CIRANDA_TIMEOUT);
      EXPECT_EQ(ciranda_operation_status(operation), CIRANDA_PENDING);
      is_late = true;
    }
    EXPECT_EQ(ciranda_wait_for(operation, std::numeric_limits<double>::infinity()), CIRANDA_OK);
    EXPECT_EQ(value, 2.0F);
    ciranda_operation_release(operation);
  });
  EXPECT_EQ(ciranda_wait_for(nullptr, 1), CIRANDA_INVALID_ARGUMENT);
}

void keep(const ciranda_operation* operation, void* user_data) {
  static_cast<std::atomic<ciranda_operation*>*>(user_data)->store(ciranda_operation_retain(operation));
}

TEST(BesidePython, AHandleMayBeKeptInACallback) {
  in_a_world(2, [](ciranda_context*& world) {
    const std::int64_t rows = ciranda_rank(world) + 1;
    const std::vector<std::int32_t> values(static_cast<std::size_t>(rows), 7);
    const ciranda_tensor tensor{values.data(), nullptr, &rows, 1, CIRANDA_INT32, nullptr, 0, 0, 0, nullptr};
    ciranda_request request = request_for(tensor, "rows");
    request.collective = CIRANDA_ALLGATHER;
    std::atomic<ciranda_operation*> kept{nullptr};
    request.callback = keep;
    request.user_data = &kept;
    ASSERT_EQ(ciranda_submit(world, &request, nullptr), CIRANDA_OK);
    while (kept.load() == nullptr) std::this_thread::yield();
    ciranda_shutdown(world);
    world = nullptr;
    ciranda_operation* again = ciranda_operation_retain(kept);
    ciranda_operation_release(kept);
    EXPECT_EQ(ciranda_wait(again), CIRANDA_OK);
    EXPECT_EQ(ciranda_poll(again), 1);
    ciranda_output output;
    ASSERT_EQ(ciranda_operation_output(again, 0, &output), CIRANDA_OK);
    EXPECT_EQ(output.n_bytes, 12U);
    EXPECT_EQ(static_cast<const std::int32_t*>(output.data)[2], 7);
    ciranda_operation_release(again);
  });
  EXPECT_EQ(ciranda_operation_retain(nullptr), nullptr);
}

TEST(BesidePython, AHandleMayBeRetainedWhileItIsPending) {
  in_a_world(2, [](ciranda_context*& world) {
    float value = 1;
    const ciranda_tensor tensor{&value, &value, nullptr, 0, CIRANDA_FLOAT32, nullptr, 0, 0, 0, nullptr};
    const ciranda_request request = request_for(tensor, "twice");
    ciranda_operation* operation = nullptr;
    ASSERT_EQ(ciranda_submit(world, &request, &operation), CIRANDA_OK);
    ciranda_operation* second = ciranda_operation_retain(operation);
    ciranda_operation_release(operation);
    EXPECT_EQ(end_of(second).first, CIRANDA_OK);
    EXPECT_EQ(value, 2.0F);
  });
}

// While a rank has joined, what needs all ranks fails, and names the binding; the rest goes on.
TEST(BesidePython, ARequestMayNeedAllRanks) {
  in_a_world(2, [](ciranda_context*& world) {
    ciranda_request join = CIRANDA_REQUEST_INIT;
    join.collective = CIRANDA_JOIN;
    ciranda_operation* joined = nullptr;
    if (ciranda_rank(world) == 0) {
      float value = 1;
      const ciranda_tensor tensor{&value, &value, nullptr, 0, CIRANDA_FLOAT32, nullptr, 0, 0, 0, nullptr};
      ciranda_request request = request_for(tensor, "whole");
      request.flags = CIRANDA_REQUEST_NEEDS_ALL;
      request.binding = "ciranda.tensorflow";
      ciranda_operation* operation = nullptr;
      EXPECT_EQ(ciranda_run(world, &request, &operation), CIRANDA_MISMATCH);
      const std::string message = ciranda_operation_message(operation);
      EXPECT_EQ(message.find("ciranda.tensorflow: "), 0U) << message;
      EXPECT_NE(message.find("joined"), std::string::npos) << message;
      EXPECT_STREQ(ciranda_operation_message(operation), message.c_str());
      ciranda_operation_release(operation);
      request = request_for(tensor, "part");
      EXPECT_EQ(ciranda_run(world, &request, nullptr), CIRANDA_OK);
    }
    ASSERT_EQ(ciranda_submit(world, &join, &joined), CIRANDA_OK);
    EXPECT_EQ(end_of(joined).first, CIRANDA_OK);
  });
}

void note(const ciranda_operation* operation, void* user_data) {
  static_cast<std::promise<std::string>*>(user_data)->set_value(ciranda_operation_message(operation));
}

TEST(BesidePython, MessagesNameTheBindingInCallbacksToo) {
  in_a_world(1, [](ciranda_context*& world) {
    const ciranda_tensor no_memory{nullptr, nullptr, nullptr, 0, CIRANDA_FLOAT32, nullptr, 0, 0, 0, nullptr};
    ciranda_request request = request_for(no_memory, "nothing");
    std::promise<std::string> noted;
    request.binding = "ciranda.jax";
    request.callback = note;
    request.user_data = &noted;
    ciranda_operation* operation = nullptr;
    ASSERT_EQ(ciranda_submit(world, &request, &operation), CIRANDA_OK);
    const std::string told = noted.get_future().get();
    EXPECT_EQ(told.find("ciranda.jax: "), 0U) << told;
    EXPECT_EQ(end_of(operation), std::pair(static_cast<ciranda_status>(CIRANDA_INVALID_ARGUMENT), told));
    request.callback = nullptr;
    request.struct_size = offsetof(ciranda_request, binding);  // of a program compiled before there was the field
    ASSERT_EQ(ciranda_submit(world, &request, &operation), CIRANDA_OK);
    EXPECT_EQ(end_of(operation).second.find("ciranda.jax"), std::string::npos);
  });
}

TEST(BesidePython, SomeRanksFormASetWithoutTheOthers) {
  in_a_world(3, [](ciranda_context*& world) {
    const std::int32_t ranks[] = {0, 2};
    std::uint32_t set = 99;
    char message[256];
    if (ciranda_rank(world) == 1) {
      EXPECT_EQ(ciranda_form_process_set(world, ranks, 2, 0, &set, message, sizeof(message)), CIRANDA_INVALID_ARGUMENT);
      EXPECT_NE(std::string(message).find("rank 1"), std::string::npos) << message;
      EXPECT_EQ(set, 0U);
      return;
    }
    ASSERT_EQ(ciranda_form_process_set(world, ranks, 2, 0, &set, message, sizeof(message)), CIRANDA_OK) << message;
    EXPECT_EQ(ciranda_process_set_ranks(world, set, nullptr, 0), 2U);
    float value = static_cast<float>(ciranda_rank(world) + 1);
    const ciranda_tensor tensor{&value, &value, nullptr, 0, CIRANDA_FLOAT32, nullptr, 0, 0, 0, nullptr};
    ciranda_request request = request_for(tensor, "among two");
    request.process_set = set;
    EXPECT_EQ(ciranda_run(world, &request, nullptr), CIRANDA_OK);
    EXPECT_EQ(value, 4.0F);
  });
  EXPECT_EQ(ciranda_form_process_set(nullptr, nullptr, 0, 0, nullptr, nullptr, 0), CIRANDA_INVALID_ARGUMENT);
}

TEST(BesidePython, RanksShareMemoryThatOutlivesTheContext) {
  in_a_world(2, [](ciranda_context*& world) {
    constexpr std::int64_t kCount = 64 << 10;
    void* memory = nullptr;
    int is_shared = 9;
    char message[256];
    ASSERT_EQ(ciranda_allocate(world, kCount * sizeof(float), &memory, &is_shared, message, sizeof(message)),
              CIRANDA_OK)
        << message;
    EXPECT_TRUE(is_shared == 0 || is_shared == 1);
    auto* values = static_cast<float*>(memory);
    EXPECT_EQ(values[kCount - 1], 0.0F);
    values[kCount - 1] = static_cast<float>(ciranda_rank(world) + 1);
    const ciranda_tensor tensor{values, values, &kCount, 1, CIRANDA_FLOAT32, nullptr, 0, 0, 0, nullptr};
    const ciranda_request request = request_for(tensor, "where it lies");
    EXPECT_EQ(ciranda_run(world, &request, nullptr), CIRANDA_OK);
    EXPECT_EQ(values[kCount - 1], 3.0F);
    ciranda_shutdown(world);
    world = nullptr;
    EXPECT_EQ(values[kCount - 1], 3.0F);
    ciranda_free(memory);
  });
  EXPECT_EQ(ciranda_allocate(nullptr, 1, nullptr, nullptr, nullptr, 0), CIRANDA_INVALID_ARGUMENT);
  ciranda_free(nullptr);
}

}  // namespace
}  // namespace ciranda::capi
