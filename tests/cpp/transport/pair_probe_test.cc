#include "transport/pair_probe.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <thread>

namespace ciranda {
namespace {

using Clock = std::chrono::steady_clock;
using Found = std::vector<std::optional<PairCosts>>;

constexpr std::size_t kSlotBytes = 8192;

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};

// Zeroed memory for an arena.
class Memory {
 public:
  explicit Memory(int n_members)
      : n_members_(n_members),
        n_bytes_(SharedArena::required_bytes(n_members, kSlotBytes)),
        memory_(static_cast<std::byte*>(std::aligned_alloc(SharedArena::kAlignment, n_bytes_))) {
    std::fill_n(memory_.get(), n_bytes_, std::byte{});
  }
  SharedArena of(int member) const { return {{memory_.get(), n_bytes_}, n_members_, member, kSlotBytes}; }

 private:
  int n_members_;
  std::size_t n_bytes_;
  std::unique_ptr<std::byte, Free> memory_;
};

// Of those that come, each on a thread.
std::vector<Found> probe(int n_members, int n_that_come, Clock::duration limit) {
  const Memory memory(n_members);
  std::vector<Found> found(static_cast<std::size_t>(n_that_come));
  std::vector<std::thread> threads;
  for (int member = 0; member < n_that_come; ++member) {
    threads.emplace_back([&, member] {
      found[static_cast<std::size_t>(member)] = probe_pairs(memory.of(member), Clock::now() + limit);
    });
  }
  for (std::thread& each : threads) each.join();
  return found;
}

TEST(PairProbe, AMemberMeasuresWithThoseAPowerOfTwoAway) {
  for (const int n : {2, 4, 7}) {
    const auto found = probe(n, n, std::chrono::seconds(60));
    for (int member = 0; member < n; ++member) {
      for (int other = 0; other < n; ++other) {
        const int apart = member ^ other;
        const auto& costs = found[static_cast<std::size_t>(member)][static_cast<std::size_t>(other)];
        ASSERT_EQ(costs.has_value(), apart == 1 || apart == 2 || apart == 4)
            << member << " and " << other << " of " << n;
        if (!costs) continue;
        EXPECT_LT(costs->line_ns, 1'000'000'000U);
        EXPECT_GT(costs->read_fs, 0U);
        EXPECT_LT(costs->read_fs, kMostFs);
        for (const std::uint64_t fs : costs->hand_over_fs) {
          EXPECT_GT(fs, 0U);
          EXPECT_LT(fs, kMostFs);
        }
        EXPECT_GT(costs->of(StagingCopy::kCached), costs->read_fs);
      }
    }
  }
}

TEST(PairProbe, WhoDoesNotComeIsNotMeasured) {
  const auto found = probe(2, 1, std::chrono::milliseconds(1));
  EXPECT_EQ(found[0], Found(2));
}

}  // namespace
}  // namespace ciranda
