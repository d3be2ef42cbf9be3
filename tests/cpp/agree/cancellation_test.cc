// Direct rounds by messages that stay open for too long: the coordinator cancels each once, and fails it only when a
// rank has said that it will not come.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <vector>

#include "agree/coordinator.hpp"
#include "agree/signatures.hpp"
#include "agree/targets.hpp"

namespace ciranda::testing {
namespace {

using std::chrono::seconds;

constexpr TimePoint kStart = TimePoint{} + seconds(1000);

class Cancellation : public ::testing::Test {
 protected:
  // Of three ranks, to which "a", of cache id 0, is open to rounds by messages.
  static Coordinator coordinator_with(seconds warning) {
    CoordinatorOptions options;
    options.size = 3;
    options.direct = Direct::kByMessages;
    options.stall.warning = warning;
    options.stall.shutdown = seconds(20);
    return Coordinator(options);
  }

  explicit Cancellation(seconds warning = seconds(10)) : coordinator(coordinator_with(warning)) {
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_TRUE(coordinator.on_request(rank, {"a", allreduce({4}), true, false}, kStart).ok());
    }
    const auto entries = coordinator.take_entries(true);
    EXPECT_EQ(std::get<ExecuteEntry>(entries.at(0)).items.at(0).direct, Direct::kByMessages);
  }

  void arrive(int rank, std::uint64_t round, TimePoint now) {
    const Status status = coordinator.on_input(rank, {0, round, {}}, now);
    EXPECT_TRUE(status.ok()) << status.message();
  }

  // The numbers of the rounds that are cancelled, of all that the log says next.
  std::vector<std::uint64_t> cancelled_at(TimePoint now) {
    n_reports = coordinator.check_stalls(now).size();
    std::vector<std::uint64_t> rounds;
    for (const LogEntry& entry : coordinator.take_entries(true)) rounds.push_back(std::get<CancelEntry>(entry).round);
    return rounds;
  }

  Coordinator coordinator;
  std::size_t n_reports = 0;  // for people, of the last check
};

class CancellationWithoutWarnings : public Cancellation {
 protected:
  CancellationWithoutWarnings() : Cancellation(seconds(0)) {}
};

TEST_F(Cancellation, IsSaidOnceOfARound) {
  arrive(0, 1, kStart);
  arrive(1, 1, kStart);
  EXPECT_EQ(cancelled_at(kStart + seconds(20)), (std::vector<std::uint64_t>{1}));
  for (const int later : {40, 80}) {
    EXPECT_EQ(coordinator.next_stall_check(), kStart + seconds(later));
    EXPECT_TRUE(cancelled_at(kStart + seconds(later)).empty()) << "the rank that is missing may have come meanwhile";
    EXPECT_EQ(n_reports, 1U);
  }
  arrive(2, 1, kStart + seconds(81));
  EXPECT_TRUE(coordinator.take_entries(true).empty()) << "all have come";
  EXPECT_FALSE(coordinator.next_stall_check());

  arrive(0, 2, kStart + seconds(90));
  EXPECT_EQ(cancelled_at(kStart + seconds(110)), (std::vector<std::uint64_t>{2})) << "the next is another";
}

// Nothing else is due by then.
TEST_F(CancellationWithoutWarnings, FailsTheRoundAsSoonAsARankWillNotCome) {
  arrive(0, 1, kStart);
  arrive(1, 1, kStart);
  EXPECT_EQ(cancelled_at(kStart + seconds(20)), (std::vector<std::uint64_t>{1}));
  EXPECT_FALSE(coordinator.next_stall_check());
  EXPECT_TRUE(coordinator.on_no_input(2, {0, 1}).ok());
  ASSERT_TRUE(coordinator.next_stall_check());
  EXPECT_LE(*coordinator.next_stall_check(), kStart + seconds(20));
  EXPECT_TRUE(coordinator.check_stalls(kStart + seconds(20)).empty());
  const auto entries = coordinator.take_entries(true);
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(std::get<FailEntry>(entries[0]).kind, ErrorKind::kTimeout);
  EXPECT_EQ(targets_of(std::get<FailEntry>(entries[0])), (std::vector<std::int32_t>{0, 1}));
}

// Another round may be what it is about: one that was cancelled, and carried out nevertheless.
TEST_F(CancellationWithoutWarnings, IsAnsweredForItsOwnRoundAlone) {
  arrive(0, 2, kStart);
  EXPECT_TRUE(coordinator.on_no_input(1, {0, 1}).ok());
  EXPECT_EQ(cancelled_at(kStart + seconds(20)), (std::vector<std::uint64_t>{2})) << "it is still one by messages";
}

TEST_F(CancellationWithoutWarnings, IsNotThereForARoundThatGoesOnByTheLogInTime) {
  arrive(0, 1, kStart);
  EXPECT_TRUE(coordinator.on_ready(1, {{{0, false}}}, kStart + seconds(1)).ok());
  EXPECT_EQ(coordinator.next_stall_check(), kStart + seconds(20));
  EXPECT_TRUE(coordinator.check_stalls(kStart + seconds(20)).empty());
  EXPECT_TRUE(std::holds_alternative<FailEntry>(coordinator.take_entries(true).at(0))) << "at once";
}

// Whoever else says so has nothing to add, and a round that is cancelled and goes on is an ordinary one.
TEST_F(CancellationWithoutWarnings, GoesOnByTheLogIfAllReportAfterAll) {
  arrive(0, 1, kStart);
  EXPECT_EQ(cancelled_at(kStart + seconds(20)), (std::vector<std::uint64_t>{1}));
  for (const int rank : {1, 2}) {
    EXPECT_TRUE(coordinator.on_no_input(rank, {0, 1}).ok());
    EXPECT_TRUE(coordinator.on_ready(rank, {{{0, false}}}, kStart + seconds(20)).ok());
  }
  EXPECT_TRUE(coordinator.check_stalls(kStart + seconds(20)).empty());
  const auto entries = coordinator.take_entries(true);
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<ExecuteEntry>(entries[0]));
}

}  // namespace
}  // namespace ciranda::testing
