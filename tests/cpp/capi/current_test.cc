// The current context and references to contexts; shutting down while others submit.
#include <ciranda/ciranda.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "capi/world_of_one.hpp"
#include "capi/world_of_threads.hpp"
#include "capi/worlds.hpp"

namespace ciranda::capi {
namespace {

ciranda_context* join_alone() {
  const ciranda_options options = alone();
  ciranda_context* world = nullptr;
  char message[512];
  EXPECT_EQ(ciranda_init(&options, &world, message, sizeof(message)), CIRANDA_OK) << message;
  return world;
}

// The status by which an allreduce of one float ends.
ciranda_status sum_of_one(ciranda_context* world, const char* name) {
  float value = 1;
  const ciranda_tensor tensor{&value, &value, nullptr, 0, CIRANDA_FLOAT32, nullptr, 0, 0, 0, nullptr};
  ciranda_request request = CIRANDA_REQUEST_INIT;
  request.name = name;
  request.tensors = &tensor;
  request.tensors_count = 1;
  ciranda_operation* operation = nullptr;
  EXPECT_EQ(ciranda_submit(world, &request, &operation), CIRANDA_OK);
  const ciranda_status status = ciranda_wait(operation);
  ciranda_operation_release(operation);
  return status;
}

TEST(Current, IsTheContextThatWasJoinedLast) {
  EXPECT_EQ(ciranda_current(), nullptr);
  EXPECT_EQ(ciranda_contexts_count(), 0U);
  ciranda_context* first = join_alone();
  ciranda_context* second = join_alone();
  EXPECT_EQ(ciranda_contexts_count(), 2U);
  ciranda_context* found = ciranda_current();
  EXPECT_EQ(found, second);
  ciranda_context_release(found);
  ciranda_shutdown(second);
  found = ciranda_current();
  EXPECT_EQ(found, first);
  ciranda_context_release(found);
  ciranda_shutdown(first);
  EXPECT_EQ(ciranda_current(), nullptr);
  EXPECT_EQ(ciranda_contexts_count(), 0U);
}

TEST(Current, WhoHoldsAContextThatWasShutDownIsToldSo) {
  ciranda_context* world = join_alone();
  ciranda_context_retain(world);
  EXPECT_EQ(ciranda_context_is_open(world), 1);
  testing::internal::CaptureStderr();
  ciranda_shutdown(world);
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_EQ(told.find("1 more references") != std::string::npos, warns_of_references_left()) << told;
  EXPECT_EQ(ciranda_context_is_open(world), 0);
  EXPECT_EQ(ciranda_rank(world), 0);
  EXPECT_EQ(sum_of_one(world, "late"), CIRANDA_ABORTED);
  ciranda_context_release(world);
}

TEST(Current, AnyWhoHoldsAReferenceMayShutDown) {
  ciranda_context* world = join_alone();
  std::thread([] { ciranda_shutdown(ciranda_current()); }).join();
  EXPECT_EQ(ciranda_context_is_open(world), 0);
  EXPECT_EQ(sum_of_one(world, "late"), CIRANDA_ABORTED);
  ciranda_shutdown(world);  // for the second time: gives the reference back
}

TEST(Current, WithoutAReferenceOfItsOwnTheWorldStaysJoined) {
  ciranda_context_release(join_alone());
  ciranda_context* world = ciranda_current();
  ASSERT_NE(world, nullptr);
  EXPECT_EQ(sum_of_one(world, "still"), CIRANDA_OK);
  ciranda_shutdown(world);
}

// Its parent's worlds are none of a child's, which has none of their threads.
TEST(Current, AChildAfterForkIsInNoWorld) {
  ciranda_context* world = join_alone();
  const pid_t child = fork();
  if (child == 0) _exit(ciranda_current() == nullptr && ciranda_contexts_count() == 0 ? 0 : 1);
  ASSERT_GT(child, 0);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(sum_of_one(world, "in the parent"), CIRANDA_OK);
  ciranda_shutdown(world);
}

TEST(Current, NullIsSaidNotCrashedOn) {
  ciranda_context_retain(nullptr);
  ciranda_context_release(nullptr);
  EXPECT_EQ(ciranda_context_is_open(nullptr), 0);
}

// As bindings do: look the context up at every call, whatever becomes of it meanwhile.
void submit_until(const std::atomic<bool>& is_over, int thread, std::atomic<int>& n_done) {
  const std::string name = "of thread " + std::to_string(thread);
  while (!is_over) {
    ciranda_context* world = ciranda_current();
    if (world == nullptr) continue;
    const ciranda_status status = sum_of_one(world, name.c_str());
    EXPECT_TRUE(status == CIRANDA_OK || status == CIRANDA_ABORTED) << ciranda_status_name(status);
    if (status == CIRANDA_OK) n_done.fetch_add(1);
    ciranda_context_release(world);
  }
}

TEST(Current, ThreadsSubmitWhileAnotherShutsDownAndJoinsAgain) {
  constexpr int kThreads = 4;
  constexpr int kWorlds = 25;
  std::atomic<bool> is_over{false};
  std::atomic<int> n_done{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back([&, i] { submit_until(is_over, i, n_done); });
  for (int i = 0; i < kWorlds; ++i) {
    ciranda_context* world = join_alone();
    const int before = n_done.load();
    while (n_done.load() < before + 2 * kThreads) std::this_thread::yield();
    ciranda_shutdown(world);
  }
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ciranda_contexts_count(), 0U);
}

// With ranks that wait for each other: what the others have begun fails with them.
TEST(Current, ARankThatShutsDownWhileItsThreadsSubmitLeavesNobodyWaiting) {
  in_a_world(2, [](ciranda_context*& world) {
    const bool leaves = ciranda_rank(world) == 1;
    std::atomic<int> n_done{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
      ciranda_context_retain(world);
      threads.emplace_back([&, i] {
        const std::string name = "of thread " + std::to_string(i);
        while (sum_of_one(world, name.c_str()) == CIRANDA_OK) n_done.fetch_add(1);
        ciranda_context_release(world);
      });
    }
    while (leaves && n_done.load() < 20) std::this_thread::yield();
    if (leaves) ciranda_shutdown(world);
    for (std::thread& thread : threads) thread.join();
    if (leaves) world = nullptr;
  });
}

}  // namespace
}  // namespace ciranda::capi
