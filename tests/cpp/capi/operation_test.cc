// Requests from submission to release, in a world of one.
#include <ciranda/ciranda.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "capi/world_of_one.hpp"

namespace ciranda::capi {
namespace {

struct Seen {
  std::atomic<int> calls{0};
  ciranda_status status = CIRANDA_PENDING;
  std::size_t outputs_count = 99;
};

void look(const ciranda_operation* operation, void* user_data) {
  Seen& seen = *static_cast<Seen*>(user_data);
  seen.status = ciranda_operation_status(operation);
  seen.outputs_count = ciranda_operation_outputs_count(operation);
  seen.calls.fetch_add(1);
}

ciranda_request request_for(const ciranda_tensor& tensor) {
  ciranda_request request = CIRANDA_REQUEST_INIT;
  request.tensors = &tensor;
  request.tensors_count = 1;
  return request;
}

TEST_F(WorldOfOne, AllreduceAppliesTheFactors) {
  const std::vector<float> input{1, 2, 3};
  std::vector<float> output(3, -1);
  const std::int64_t shape = 3;
  const ciranda_tensor tensor{input.data(), output.data(), &shape, 1, CIRANDA_FLOAT32, nullptr, 0, 0, 0, nullptr};
  ciranda_request request = request_for(tensor);
  request.prescale = 2;
  request.postscale = 0.25;
  request.name = "x";
  ciranda_operation* operation = nullptr;
  ASSERT_EQ(ciranda_submit(world_, &request, &operation), CIRANDA_OK);
  EXPECT_EQ(ciranda_wait(operation), CIRANDA_OK) << ciranda_operation_message(operation);
  EXPECT_EQ(ciranda_poll(operation), 1);
  EXPECT_EQ(ciranda_operation_status(operation), CIRANDA_OK);
  EXPECT_STREQ(ciranda_operation_message(operation), "");
  EXPECT_EQ(output, (std::vector<float>{0.5, 1, 1.5}));
  EXPECT_EQ(ciranda_operation_outputs_count(operation), 0u);
  ciranda_operation_release(operation);
}

TEST_F(WorldOfOne, RunNeedsNoOperationWhereThereIsNothingToSay) {
  std::vector<float> values{1, 2, 3};
  const std::int64_t shape = 3;
  const ciranda_tensor tensor{values.data(), values.data(), &shape, 1, CIRANDA_FLOAT32, nullptr, 0, 0, 0, nullptr};
  ciranda_request request = request_for(tensor);
  request.postscale = 2;
  request.name = "x";
  ciranda_operation* operation = reinterpret_cast<ciranda_operation*>(&values);  // is overwritten
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(ciranda_run(world_, &request, &operation), CIRANDA_OK);
    EXPECT_EQ(operation, nullptr);
  }
  ASSERT_EQ(ciranda_run(world_, &request, nullptr), CIRANDA_OK);
  EXPECT_EQ(values, (std::vector<float>{16, 32, 48}));
}

TEST_F(WorldOfOne, RunGivesTheOperationOfWhatFailedOrHasOutputs) {
  float value = 1;
  const ciranda_tensor no_memory{nullptr, nullptr, nullptr, 0, CIRANDA_FLOAT32, nullptr, 0, 0, 0, nullptr};
  ciranda_request request = request_for(no_memory);
  ciranda_operation* operation = nullptr;
  EXPECT_EQ(ciranda_run(world_, &request, &operation), CIRANDA_INVALID_ARGUMENT);
  ASSERT_NE(operation, nullptr);
  EXPECT_NE(std::string(ciranda_operation_message(operation)).find("no memory"), std::string::npos);
  ciranda_operation_release(operation);
  EXPECT_EQ(ciranda_run(world_, &request, nullptr), CIRANDA_INVALID_ARGUMENT);

  const std::int64_t shape = 1;
  const ciranda_tensor tensor{&value, nullptr, &shape, 1, CIRANDA_FLOAT32, nullptr, 0, 0, 0, nullptr};
  request = request_for(tensor);
  request.collective = CIRANDA_ALLGATHER;
  EXPECT_EQ(ciranda_run(world_, &request, &operation), CIRANDA_OK);
  ASSERT_NE(operation, nullptr);
  EXPECT_EQ(ciranda_operation_outputs_count(operation), 1u);
  ciranda_operation_release(operation);

  request.collective = 99;
  operation = reinterpret_cast<ciranda_operation*>(&value);
  EXPECT_EQ(ciranda_run(world_, &request, &operation), CIRANDA_INVALID_ARGUMENT);
  EXPECT_EQ(operation, nullptr);
  EXPECT_EQ(ciranda_run(nullptr, &request, &operation), CIRANDA_INVALID_ARGUMENT);
  EXPECT_EQ(ciranda_run(world_, nullptr, &operation), CIRANDA_INVALID_ARGUMENT);
}

TEST_F(WorldOfOne, AllgatherGivesItsOutput) {
  const std::vector<std::int32_t> input{1, 2, 3, 4, 5, 6};
  const std::int64_t shape[] = {3, 2};
  const ciranda_tensor tensor{input.data(), nullptr, shape, 2, CIRANDA_INT32, nullptr, 0, 0, 0, nullptr};
  ciranda_request request = request_for(tensor);
  request.collective = CIRANDA_ALLGATHER;
  ciranda_operation* operation = nullptr;
  ASSERT_EQ(ciranda_submit(world_, &request, &operation), CIRANDA_OK);
  ASSERT_EQ(ciranda_wait(operation), CIRANDA_OK) << ciranda_operation_message(operation);
  leave();  // the operation outlives its context
  ASSERT_EQ(ciranda_operation_outputs_count(operation), 1u);
  ciranda_output output;
  ASSERT_EQ(ciranda_operation_output(operation, 0, &output), CIRANDA_OK);
  ASSERT_EQ(output.n_bytes, 24u);
  ASSERT_EQ(output.ndim, 2);
  EXPECT_EQ(output.shape[0], 3);
  EXPECT_EQ(output.shape[1], 2);
  const auto* values = static_cast<const std::int32_t*>(output.data);
  EXPECT_EQ(std::vector<std::int32_t>(values, values + 6), input);
  EXPECT_EQ(ciranda_operation_output(operation, 1, &output), CIRANDA_INVALID_ARGUMENT);
  EXPECT_EQ(output.data, nullptr);
  ciranda_operation_release(operation);
}

TEST_F(WorldOfOne, AnInvalidRequestFailsByItsOperation) {
  float value = 0;
  const std::int64_t shape = -1;
  const ciranda_tensor tensor{&value, &value, &shape, 1, CIRANDA_FLOAT32, nullptr, 0, 0, 0, nullptr};
  ciranda_request request = request_for(tensor);
  request.name = "wrong";
  Seen seen;
  request.callback = look;
  request.user_data = &seen;
  ciranda_operation* operation = nullptr;
  ASSERT_EQ(ciranda_submit(world_, &request, &operation), CIRANDA_OK);
  EXPECT_EQ(ciranda_wait(operation), CIRANDA_INVALID_ARGUMENT);
  EXPECT_NE(std::string(ciranda_operation_message(operation)).find("wrong"), std::string::npos)
      << ciranda_operation_message(operation);
  ciranda_operation_release(operation);
  leave();  // by which the callback has run
  EXPECT_EQ(seen.calls.load(), 1);
  EXPECT_EQ(seen.status, CIRANDA_INVALID_ARGUMENT);
}

TEST_F(WorldOfOne, AnUnreadableRequestGivesNoOperation) {
  ciranda_request request = CIRANDA_REQUEST_INIT;
  request.collective = 17;
  ciranda_operation* operation = reinterpret_cast<ciranda_operation*>(&request);
  EXPECT_EQ(ciranda_submit(world_, &request, &operation), CIRANDA_INVALID_ARGUMENT);
  EXPECT_EQ(operation, nullptr);
  EXPECT_EQ(ciranda_submit(world_, nullptr, nullptr), CIRANDA_INVALID_ARGUMENT);
  EXPECT_EQ(ciranda_submit(nullptr, &request, nullptr), CIRANDA_INVALID_ARGUMENT);
}

TEST_F(WorldOfOne, TheCallbackComesWithoutAHandle) {
  std::vector<double> values{1, 2};
  const std::int64_t shape = 2;
  const ciranda_tensor tensor{values.data(), values.data(), &shape, 1, CIRANDA_FLOAT64, nullptr, 0, 0, 0, nullptr};
  ciranda_request request = request_for(tensor);
  Seen seen;
  request.callback = look;
  request.user_data = &seen;
  ASSERT_EQ(ciranda_submit(world_, &request, nullptr), CIRANDA_OK);
  leave();  // completes or aborts everything
  EXPECT_EQ(seen.calls.load(), 1);
  EXPECT_NE(seen.status, CIRANDA_PENDING);
  EXPECT_EQ(seen.outputs_count, 0u);
}

TEST_F(WorldOfOne, GroupedTensorsAreOneRequest) {
  std::vector<float> a{1, 2};
  std::vector<std::int64_t> b{3};
  const std::int64_t shapes[] = {2, 1};
  const ciranda_tensor tensors[] = {{a.data(), a.data(), &shapes[0], 1, CIRANDA_FLOAT32, nullptr, 0, 0, 0, nullptr},
                                    {b.data(), b.data(), &shapes[1], 1, CIRANDA_INT64, nullptr, 0, 0, 0, nullptr}};
  ciranda_request request = CIRANDA_REQUEST_INIT;
  request.tensors = tensors;
  request.tensors_count = 2;
  request.postscale = 2;
  ciranda_operation* operation = nullptr;
  ASSERT_EQ(ciranda_submit(world_, &request, &operation), CIRANDA_OK);
  EXPECT_EQ(ciranda_wait(operation), CIRANDA_OK) << ciranda_operation_message(operation);
  EXPECT_EQ(a, (std::vector<float>{2, 4}));
  EXPECT_EQ(b, (std::vector<std::int64_t>{6}));
  ciranda_operation_release(operation);
}

TEST(Operation, NullIsSaidNotCrashedOn) {
  EXPECT_EQ(ciranda_wait(nullptr), CIRANDA_INVALID_ARGUMENT);
  EXPECT_EQ(ciranda_wait_interruptible(nullptr, nullptr, nullptr), CIRANDA_INVALID_ARGUMENT);
  EXPECT_EQ(ciranda_poll(nullptr), 1);
  EXPECT_EQ(ciranda_operation_status(nullptr), CIRANDA_INVALID_ARGUMENT);
  EXPECT_STRNE(ciranda_operation_message(nullptr), "");
  EXPECT_EQ(ciranda_operation_outputs_count(nullptr), 0u);
  EXPECT_EQ(ciranda_operation_output(nullptr, 0, nullptr), CIRANDA_INVALID_ARGUMENT);
  ciranda_operation_release(nullptr);
}

}  // namespace
}  // namespace ciranda::capi
