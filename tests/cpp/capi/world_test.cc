// Several ranks over the C ABI: results, one error for all, waits that are given up, and one rank's leaving.
#include <ciranda/ciranda.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "capi/world_of_threads.hpp"

namespace ciranda::capi {
namespace {

ciranda_operation* submit(ciranda_context* world, const char* name, std::vector<float>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  const ciranda_tensor tensor{values.data(), values.data(), &count, 1, CIRANDA_FLOAT32, nullptr, 0, 0, 0, nullptr};
  ciranda_request request = CIRANDA_REQUEST_INIT;
  request.name = name;
  request.tensors = &tensor;
  request.tensors_count = 1;
  ciranda_operation* operation = nullptr;
  EXPECT_EQ(ciranda_submit(world, &request, &operation), CIRANDA_OK);
  return operation;
}

// The sum over all ranks of one float each.
void expect_sum(ciranda_context* world, const char* name) {
  std::vector<float> values{static_cast<float>(ciranda_rank(world) + 1)};
  ciranda_operation* operation = submit(world, name, values);
  EXPECT_EQ(ciranda_wait(operation), CIRANDA_OK) << ciranda_operation_message(operation);
  const int n = ciranda_size(world);
  EXPECT_EQ(values[0], static_cast<float>(n * (n + 1) / 2));
  ciranda_operation_release(operation);
}

TEST(World, SumsOverAllRanks) {
  for (const int n_ranks : {2, 4}) {
    in_a_world(n_ranks, [&](ciranda_context*& world) {
      EXPECT_EQ(ciranda_size(world), n_ranks);
      for (int step = 0; step < 20; ++step) expect_sum(world, "sum");
      expect_sum(world, nullptr);
    });
  }
}

TEST(World, RunsTheSameCallAgainAndAgain) {
  for (const int n_ranks : {2, 4}) {
    in_a_world(n_ranks, [&](ciranda_context*& world) {
      for (int step = 0; step < 200; ++step) {
        float value = static_cast<float>((ciranda_rank(world) + 1) * step);
        const ciranda_tensor tensor{&value, &value, nullptr, 0, CIRANDA_FLOAT32, nullptr, 0, 0, 0, nullptr};
        ciranda_request request = CIRANDA_REQUEST_INIT;
        request.name = "run";
        request.tensors = &tensor;
        request.tensors_count = 1;
        ciranda_operation* operation = nullptr;
        ASSERT_EQ(ciranda_run(world, &request, &operation), CIRANDA_OK);
        ASSERT_EQ(operation, nullptr);
        ASSERT_EQ(value, static_cast<float>(n_ranks * (n_ranks + 1) / 2 * step));
      }
    });
  }
}

// Of what is recorded, which was called in the place alone.
int n_repeated(ciranda_recording* recording, std::uint32_t process_set, std::uint32_t lane) {
  int n = 0;
  ciranda_record record;
  while (ciranda_record_read(recording, &record, sizeof record, 1) == 1) {
    EXPECT_EQ(record.process_set, process_set);
    EXPECT_EQ(record.lane, lane);
    n += record.path == CIRANDA_PATH_DIRECT || record.path == CIRANDA_PATH_REPEATED ? 1 : 0;
  }
  return n;
}

TEST(World, RunsTheSameCallAgainAndAgainInAnyLane) {
  in_a_world(3, [&](ciranda_context*& world) {
    const int rank = ciranda_rank(world);
    const std::int32_t ranks[] = {0, 2};
    std::uint32_t set = 0;
    if (rank != 1) {
      ASSERT_EQ(ciranda_form_process_set(world, ranks, 2, 0, &set, nullptr, 0), CIRANDA_OK);
    }
    for (const bool is_in_set : {false, true}) {
      if (is_in_set && rank == 1) return;
      ciranda_recording* recording = nullptr;
      ASSERT_EQ(ciranda_record_start(world, &recording), CIRANDA_OK);
      for (int step = 0; step < 400; ++step) {
        float value = static_cast<float>((rank + 1) * step);
        const ciranda_tensor tensor{&value, &value, nullptr, 0, CIRANDA_FLOAT32, nullptr, 0, 0, 0, nullptr};
        ciranda_request request = CIRANDA_REQUEST_INIT;
        request.name = step % 2 == 0 ? "run" : nullptr;
        request.tensors = &tensor;
        request.tensors_count = 1;
        request.process_set = is_in_set ? set : 0;
        request.lane = is_in_set ? 0 : 1;
        ciranda_operation* operation = nullptr;
        ASSERT_EQ(ciranda_run(world, &request, &operation), CIRANDA_OK);
        ASSERT_EQ(operation, nullptr);
        ASSERT_EQ(value, static_cast<float>((is_in_set ? 4 : 6) * step));
      }
      EXPECT_GT(n_repeated(recording, is_in_set ? set : 0, is_in_set ? 0 : 1), 0);
      ciranda_record_stop(recording);
    }
  });
}

// With memory for the result, and without where the library may allocate.
// A handle may have been used for another name, and in a world that has ended.
TEST(World, RunsAndSubmitsWithHandles) {
  std::array<ciranda_handle*, 2> handles{ciranda_handle_new(), ciranda_handle_new()};
  for (int nth_world = 0; nth_world < 2; ++nth_world) {
    in_a_world(2, [&](ciranda_context*& world) {
      const int rank = ciranda_rank(world);
      for (int step = 0; step < 100; ++step) {
        float value = static_cast<float>((rank + 1) * step);
        const ciranda_tensor tensor{&value, &value, nullptr, 0, CIRANDA_FLOAT32, nullptr, 0, 0, 0, nullptr};
        ciranda_request request = CIRANDA_REQUEST_INIT;
        request.name = step % 10 == 0 ? "other" : "run";
        request.tensors = &tensor;
        request.tensors_count = 1;
        request.handle = handles[static_cast<std::size_t>(rank)];
        ciranda_operation* operation = nullptr;
        ASSERT_EQ((step % 7 == 0 ? ciranda_submit : ciranda_run)(world, &request, &operation), CIRANDA_OK);
        if (operation != nullptr) {
          ASSERT_EQ(ciranda_wait(operation), CIRANDA_OK);
        }
        ciranda_operation_release(operation);
        ASSERT_EQ(value, static_cast<float>(3 * step));
      }
    });
  }
  for (ciranda_handle* handle : handles) ciranda_handle_release(handle);
  ciranda_handle_release(nullptr);
}

TEST(World, RunsTheSameCallOfRowsAgainAndAgain) {
  for (const ciranda_collective collective : {CIRANDA_ALLGATHER, CIRANDA_REDUCESCATTER, CIRANDA_ALLTOALL}) {
    in_a_world(2, [&](ciranda_context*& world) {
      const int rank = ciranda_rank(world);
      for (int step = 0; step < 100; ++step) {
        const bool is_given = collective == CIRANDA_ALLTOALL || step % 2 == 0;
        const std::vector<std::int32_t> values{10 * step + rank, 20 * step + rank};
        std::vector<std::int32_t> result(4, -1);
        const std::int64_t shape = 2;
        const ciranda_tensor tensor{
            values.data(), is_given ? result.data() : nullptr, &shape, 1, CIRANDA_INT32, nullptr, 0, 0, 0, nullptr};
        ciranda_request request = CIRANDA_REQUEST_INIT;
        request.collective = collective;
        request.name = "rows";
        request.tensors = &tensor;
        request.tensors_count = 1;
        if (is_given) request.flags = CIRANDA_REQUEST_HAS_ROOM;
        ciranda_operation* operation = nullptr;
        ASSERT_EQ(ciranda_run(world, &request, &operation), CIRANDA_OK);
        ASSERT_EQ(operation == nullptr, is_given);
        if (!is_given) {
          ciranda_output output;
          ASSERT_EQ(ciranda_operation_output(operation, 0, &output), CIRANDA_OK);
          std::memcpy(result.data(), output.data, output.n_bytes);
          ciranda_operation_release(operation);
        }
        const int own = (rank + 1) * 10 * step;  // what each has at this rank's place
        std::vector<std::int32_t> expected{10 * step, 20 * step, 10 * step + 1, 20 * step + 1};
        if (collective == CIRANDA_REDUCESCATTER) expected = {2 * own + 1, -1, -1, -1};
        if (collective == CIRANDA_ALLTOALL) expected = {own, own + 1, -1, -1};
        ASSERT_EQ(result, expected);
      }
    });
  }
}

TEST(World, AnAlltoallThatIsSaidToHaveRoomHasSome) {
  in_a_world(1, [](ciranda_context*& world) {
    const float value = 1;
    const std::int64_t shape = 1;
    const ciranda_tensor tensor{&value, nullptr, &shape, 1, CIRANDA_FLOAT32, nullptr, 0, 0, 0, nullptr};
    ciranda_request request = CIRANDA_REQUEST_INIT;
    request.collective = CIRANDA_ALLTOALL;
    request.tensors = &tensor;
    request.tensors_count = 1;
    request.flags = CIRANDA_REQUEST_HAS_ROOM;
    EXPECT_EQ(ciranda_run(world, &request, nullptr), CIRANDA_INVALID_ARGUMENT);
  });
}

TEST(World, GathersUnevenParts) {
  in_a_world(3, [](ciranda_context*& world) {
    const int rank = ciranda_rank(world);
    const std::vector<std::int64_t> mine(static_cast<std::size_t>(rank), rank);  // rank 0 has nothing
    const std::int64_t count = rank;
    const ciranda_tensor tensor{mine.data(), nullptr, &count, 1, CIRANDA_INT64, nullptr, 0, 0, 0, nullptr};
    ciranda_request request = CIRANDA_REQUEST_INIT;
    request.collective = CIRANDA_ALLGATHER;
    request.name = "parts";
    request.tensors = &tensor;
    request.tensors_count = 1;
    ciranda_operation* operation = nullptr;
    ASSERT_EQ(ciranda_submit(world, &request, &operation), CIRANDA_OK);
    ASSERT_EQ(ciranda_wait(operation), CIRANDA_OK) << ciranda_operation_message(operation);
    ciranda_output output;
    ASSERT_EQ(ciranda_operation_output(operation, 0, &output), CIRANDA_OK);
    const auto* values = static_cast<const std::int64_t*>(output.data);
    EXPECT_EQ(std::vector<std::int64_t>(values, values + output.shape[0]), (std::vector<std::int64_t>{1, 2, 2}));
    ciranda_operation_release(operation);
  });
}

// Rank r sends r rows to rank 0 and one to each other.
TEST(World, AlltoallDealsOutRowsAndSaysHowManyCameFromWhom) {
  in_a_world(3, [](ciranda_context*& world) {
    const std::int64_t rank = ciranda_rank(world);
    const std::int64_t splits[] = {rank, 1, 1};
    const std::int64_t shape[] = {rank + 2, 2};
    const std::vector<std::int32_t> mine(static_cast<std::size_t>(2 * shape[0]), static_cast<std::int32_t>(rank));
    const ciranda_tensor tensor{mine.data(), nullptr, shape, 2, CIRANDA_INT32, splits, 3, 0, 0, nullptr};
    ciranda_request request = CIRANDA_REQUEST_INIT;
    request.collective = CIRANDA_ALLTOALL;
    request.name = "rows";
    request.tensors = &tensor;
    request.tensors_count = 1;
    ciranda_operation* operation = nullptr;
    ASSERT_EQ(ciranda_submit(world, &request, &operation), CIRANDA_OK);
    ASSERT_EQ(ciranda_wait(operation), CIRANDA_OK) << ciranda_operation_message(operation);
    EXPECT_EQ(ciranda_operation_outputs_count(operation), 2U);
    ciranda_output output;
    ASSERT_EQ(ciranda_operation_output(operation, 0, &output), CIRANDA_OK);
    const auto* values = static_cast<const std::int32_t*>(output.data);
    EXPECT_EQ(
        std::vector<std::int32_t>(values, values + 2 * output.shape[0]),
        rank == 0 ? (std::vector<std::int32_t>{1, 1, 2, 2, 2, 2}) : (std::vector<std::int32_t>{0, 0, 1, 1, 2, 2}));
    ASSERT_EQ(ciranda_operation_output(operation, 1, &output), CIRANDA_OK);
    const auto* counts = static_cast<const std::int64_t*>(output.data);
    EXPECT_EQ(std::vector<std::int64_t>(counts, counts + 3),
              rank == 0 ? (std::vector<std::int64_t>{0, 1, 2}) : (std::vector<std::int64_t>{1, 1, 1}));
    ciranda_operation_release(operation);
  });
}

TEST(World, AMismatchIsAnErrorForAllAndTheContextGoesOn) {
  in_a_world(2, [](ciranda_context*& world) {
    std::vector<float> values(ciranda_rank(world) == 0 ? 3 : 4);
    ciranda_operation* operation = submit(world, "shapes", values);
    EXPECT_EQ(ciranda_wait(operation), CIRANDA_MISMATCH);
    const std::string message = ciranda_operation_message(operation);
    for (const char* part : {"shapes", "[3]", "[4]", "rank 0", "rank 1"}) {
      EXPECT_NE(message.find(part), std::string::npos) << message;
    }
    ciranda_operation_release(operation);
    expect_sum(world, "afterwards");
  });
}

TEST(World, WhatIsPendingFailsWhenAnotherRankLeaves) {
  in_a_world(2, [](ciranda_context*& world) {
    if (ciranda_rank(world) == 1) {
      expect_sum(world, "together");
      ciranda_shutdown(world);
      world = nullptr;
      return;
    }
    expect_sum(world, "together");
    std::vector<float> values(2);
    ciranda_operation* operation = submit(world, "alone", values);
    EXPECT_EQ(ciranda_wait(operation), CIRANDA_ABORTED) << ciranda_operation_message(operation);
    EXPECT_NE(std::string(ciranda_operation_message(operation)).find("rank 1"), std::string::npos)
        << ciranda_operation_message(operation);
    ciranda_operation_release(operation);
  });
}

// Given up at the third time of asking, to see that a wait goes on when it is not.
int third_time(void* user_data) { return static_cast<std::atomic<int>*>(user_data)->fetch_add(1) == 2 ? 1 : 0; }

TEST(World, ASignalMayEndAWait) {
  struct sigaction nothing = {};
  nothing.sa_handler = [](int) {};
  struct sigaction before;
  sigaction(SIGUSR1, &nothing, &before);
  std::atomic<int> n_asked{0};
  std::atomic<bool> is_given_up{false};
  in_a_world(2, [&](ciranda_context*& world) {
    if (ciranda_rank(world) == 0) {
      const pthread_t waiting = pthread_self();
      std::thread alarm([&, waiting] {
        while (!is_given_up) {
          pthread_kill(waiting, SIGUSR1);
          std::this_thread::yield();
        }
      });
      std::vector<float> values{1};
      ciranda_operation* operation = submit(world, "late", values);
      EXPECT_EQ(ciranda_wait_interruptible(operation, third_time, &n_asked), CIRANDA_ABORTED);
      EXPECT_EQ(ciranda_operation_status(operation), CIRANDA_PENDING);
      EXPECT_EQ(n_asked.load(), 3);
      is_given_up = true;
      alarm.join();
      EXPECT_EQ(ciranda_wait(operation), CIRANDA_OK) << ciranda_operation_message(operation);
      EXPECT_EQ(values[0], 3.0f);
      ciranda_operation_release(operation);
    } else {
      while (!is_given_up) std::this_thread::yield();
      std::vector<float> values{2};
      ciranda_operation* operation = submit(world, "late", values);
      EXPECT_EQ(ciranda_wait(operation), CIRANDA_OK);
      ciranda_operation_release(operation);
    }
  });
  sigaction(SIGUSR1, &before, nullptr);
}

}  // namespace
}  // namespace ciranda::capi
