#include "transport/senders.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

namespace ciranda {
namespace {

struct alignas(Senders::kLineBytes) Lines {
  std::array<std::byte, Senders::required_bytes(70)> bytes{};
};

std::vector<int> taken(const Senders& senders) {
  std::vector<int> members;
  senders.take([&members](int member) { members.push_back(member); });
  return members;
}

TEST(Senders, AreTakenOnce) {
  Lines lines;
  const Senders senders(lines.bytes);
  EXPECT_EQ(taken(senders), std::vector<int>{});
  for (const int member : {69, 0, 63, 64, 0}) senders.note(member);
  EXPECT_EQ(taken(senders), (std::vector{0, 63, 64, 69}));
  EXPECT_EQ(taken(senders), std::vector<int>{});
}

// Whatever a member wrote before it noted itself is seen by whoever takes it.
TEST(Senders, NoNoteIsLost) {
  constexpr int kTimes = 100'000;
  Lines lines;
  std::array<std::atomic<int>, 2> written{};
  std::vector<std::thread> threads;
  for (const int member : {3, 66}) {
    threads.emplace_back([&lines, &counter = written[member == 3 ? 0 : 1], member] {
      const Senders senders(lines.bytes);
      for (int i = 1; i <= kTimes; ++i) {
        counter.store(i, std::memory_order_relaxed);
        senders.note(member);
      }
    });
  }
  std::array<int, 2> seen{};
  const Senders senders(lines.bytes);
  while (seen[0] < kTimes || seen[1] < kTimes) {
    senders.take([&](int member) {
      const std::size_t i = member == 3 ? 0 : 1;
      seen[i] = written[i].load(std::memory_order_relaxed);
    });
    std::this_thread::yield();
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(seen, (std::array{kTimes, kTimes}));
}

}  // namespace
}  // namespace ciranda
