// CompletionQueue: what is done comes out in the order in which it was done, what is late at its deadline, and each
// once.
#include "bindings/python/completion_queue.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

namespace ciranda::python {
namespace {

using std::chrono::milliseconds;
using Clock = CompletionQueue::Clock;

const std::chrono::minutes kForever{5};  // a test that gets there has failed

TEST(CompletionQueue, GivesWhatIsDoneInTheOrderOfCompletion) {
  CompletionQueue queue;
  for (std::uint64_t key = 0; key < 3; ++key) queue.expect(key);
  queue.done(2);
  queue.done(0);
  EXPECT_EQ(queue.next(), 2U);
  EXPECT_EQ(queue.next(), 0U);
  queue.done(1);
  EXPECT_EQ(queue.next(), 1U);
}

TEST(CompletionQueue, GivesWhatIsLateOnceAndNotAgainWhenItIsDone) {
  CompletionQueue queue;
  queue.expect(1, Clock::now() + milliseconds(5));
  queue.expect(2);
  const auto start = Clock::now();
  EXPECT_EQ(queue.next(), 1U);
  EXPECT_LT(Clock::now() - start, kForever);
  queue.done(1);
  queue.done(2);
  EXPECT_EQ(queue.next(), 2U);
  queue.close();
  EXPECT_EQ(queue.next(), std::nullopt);
}

TEST(CompletionQueue, ADeadlineOfWhatIsDoneEndsNothing) {
  CompletionQueue queue;
  queue.expect(1, Clock::now());
  queue.done(1);
  EXPECT_EQ(queue.next(), 1U);
  queue.close();
  EXPECT_EQ(queue.next(), std::nullopt);
}

// A thread that sleeps until a deadline hears of an earlier one.
TEST(CompletionQueue, AnEarlierDeadlineIsHeeded) {
  CompletionQueue queue;
  queue.expect(1, Clock::now() + kForever);
  std::optional<std::uint64_t> first;
  std::thread waiter([&] { first = queue.next(); });
  std::this_thread::sleep_for(milliseconds(2));  // most often it sleeps by now; if not, this holds as well
  queue.expect(2, Clock::now());
  waiter.join();
  EXPECT_EQ(first, 2U);
}

TEST(CompletionQueue, GivesWhatIsDoneAlthoughItIsClosed) {
  CompletionQueue queue;
  queue.expect(1);
  queue.done(1);
  queue.close();
  EXPECT_EQ(queue.next(), 1U);
  EXPECT_EQ(queue.next(), std::nullopt);
}

TEST(CompletionQueue, SeveralThreadsGetEachKeyOnce) {
  constexpr std::uint64_t kKeys = 3000;
  CompletionQueue queue;
  std::mutex mutex;
  std::multiset<std::uint64_t> seen;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (const auto key = queue.next()) {
        const std::lock_guard lock(mutex);
        seen.insert(*key);
      }
    });
  }
  for (std::uint64_t key = 0; key < kKeys; ++key) {
    queue.expect(key, key % 3 == 0 ? std::optional(Clock::now()) : std::nullopt);
    queue.done(key);
  }
  queue.close();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(seen.size(), kKeys);
  EXPECT_EQ(std::set<std::uint64_t>(seen.begin(), seen.end()).size(), kKeys);
}

}  // namespace
}  // namespace ciranda::python
