// Ranks that never come: they are named after the warning time, and what they miss fails after the shutdown time.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "agree/coordinator.hpp"
#include "agree/members.hpp"
#include "agree/signatures.hpp"
#include "agree/targets.hpp"

namespace ciranda::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint kStart = TimePoint{} + seconds(1000);

CoordinatorOptions three_ranks(seconds warning, seconds shutdown) {
  CoordinatorOptions options;
  options.size = 3;
  options.hosts = {"alpha", "beta", ""};
  options.stall.warning = warning;
  options.stall.shutdown = shutdown;
  return options;
}

void request(Coordinator& coordinator, int rank, const std::string& name, TimePoint now) {
  const Status status = coordinator.on_request(rank, {name, allreduce({4}), true, true}, now);
  EXPECT_TRUE(status.ok()) << status.message();
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Stall, IsReportedAfterTheWarningTime) {
  Coordinator coordinator(three_ranks(seconds(10), seconds(0)));
  EXPECT_FALSE(coordinator.next_stall_check());
  request(coordinator, 1, "warm-up", kStart - seconds(5));
  request(coordinator, 0, "grad", kStart);
  EXPECT_EQ(coordinator.next_stall_check(), kStart + seconds(5));  // for "warm-up"
  EXPECT_TRUE(coordinator.check_stalls(kStart + seconds(5) - milliseconds(1)).empty());
  ASSERT_EQ(coordinator.check_stalls(kStart + seconds(5)).size(), 1U);
  EXPECT_EQ(coordinator.next_stall_check(), kStart + seconds(10));
  const auto reports = coordinator.check_stalls(kStart + seconds(10));
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].missing, (std::vector<int>{1, 2}));
  EXPECT_TRUE(has(reports[0].text,
                  "'grad' has waited 10.0 s for rank 1 (host beta), which last submitted 'warm-up' "
                  "15.0 s ago, rank 2, which has submitted nothing yet. Ranks that submitted it: 0."))
      << reports[0].text;
}

// Of calls that all have met for a coarse clock tells the time, some milliseconds late.
TEST(Stall, TellsWhatWasHeardLastWhateverTheClocksSay) {
  Members members(2, {}, {});
  EXPECT_TRUE(has(members.last_text(1, kStart), "submitted nothing yet"));
  members.heard(1, "reported", kStart + milliseconds(3));
  members.all_heard("met", kStart);
  EXPECT_TRUE(has(members.last_text(1, kStart + seconds(2)), "last submitted 'met' 2.0 s ago"));
  members.heard(1, "again", kStart);
  EXPECT_TRUE(has(members.last_text(1, kStart + seconds(2)), "last submitted 'again'"));
  EXPECT_TRUE(has(members.last_text(0, kStart + seconds(2)), "last submitted 'met'"));
}

TEST(Stall, TellsOfCallsInDifferentOrders) {
  Coordinator coordinator(three_ranks(seconds(10), seconds(0)));
  request(coordinator, 0, "f", kStart);
  request(coordinator, 2, "f", kStart);
  request(coordinator, 1, "g", kStart + seconds(1));
  auto reports = coordinator.check_stalls(kStart + seconds(10));
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_TRUE(has(reports[0].text, "Rank 1 has submitted 'g' instead, which rank 0 has not: these two"))
      << reports[0].text;
  reports = coordinator.check_stalls(kStart + seconds(11));
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_TRUE(has(reports[0].text, "'g' has waited")) << reports[0].text;
  EXPECT_TRUE(has(reports[0].text, "Rank 0 has submitted 'f' instead, which rank 1 has not")) << reports[0].text;
}

TEST(Stall, FailsCallsInDifferentOrdersWhereThatIsAskedFor) {
  CoordinatorOptions options = three_ranks(seconds(10), seconds(600));
  options.fails_other_orders = true;
  Coordinator coordinator(options);
  request(coordinator, 1, "late", kStart - seconds(1));
  for (const int rank : {0, 2}) request(coordinator, rank, "late", kStart - seconds(1));
  (void)coordinator.take_entries(true);
  request(coordinator, 0, "f", kStart);
  request(coordinator, 2, "f", kStart);
  EXPECT_TRUE(coordinator.check_stalls(kStart + seconds(9)).empty());
  request(coordinator, 1, "g", kStart + seconds(9));
  EXPECT_TRUE(coordinator.check_stalls(kStart + seconds(10)).empty());
  const auto entries = coordinator.take_entries(false);
  ASSERT_EQ(entries.size(), 2U);  // also what the others have not come to
  const auto first = std::get<FailEntry>(entries[0]);
  EXPECT_EQ(first.kind, ErrorKind::kMismatch);
  EXPECT_EQ(targets_of(first), (std::vector<std::int32_t>{0, 2}));
  EXPECT_TRUE(has(first.text, "Rank 1 has submitted 'g' instead, which rank 0 has not")) << first.text;
  const auto second = std::get<FailEntry>(entries[1]);
  EXPECT_EQ(targets_of(second), (std::vector<std::int32_t>{1}));
  EXPECT_TRUE(has(second.text, "Rank 0 has submitted 'f' instead, which rank 1 has not")) << second.text;
  EXPECT_FALSE(coordinator.next_stall_check());
}

TEST(Stall, DoesNotFailARankThatIsOnlyLate) {
  CoordinatorOptions options = three_ranks(seconds(10), seconds(600));
  options.fails_other_orders = true;
  Coordinator coordinator(options);
  for (const int rank : {0, 2}) request(coordinator, rank, "f", kStart);
  EXPECT_EQ(coordinator.check_stalls(kStart + seconds(10)).size(), 1U);
  EXPECT_TRUE(coordinator.take_entries(false).empty());
}

TEST(Stall, DoesNotTellSoOfARankThatIsOnlyAhead) {
  Coordinator coordinator(three_ranks(seconds(10), seconds(0)));
  for (const int rank : {0, 2}) request(coordinator, rank, "f", kStart);
  request(coordinator, 0, "g", kStart);
  for (const StallReport& report : coordinator.check_stalls(kStart + seconds(10))) {
    EXPECT_FALSE(has(report.text, "orders")) << report.text;
  }
}

TEST(Stall, IsReportedAgainInShortAfterTwiceTheTime) {
  Coordinator coordinator(three_ranks(seconds(10), seconds(0)));
  request(coordinator, 0, "grad", kStart);
  for (const int waited : {10, 20, 40, 80}) {
    EXPECT_TRUE(coordinator.check_stalls(kStart + seconds(waited) - milliseconds(1)).empty());
    const auto reports = coordinator.check_stalls(kStart + seconds(waited));
    ASSERT_EQ(reports.size(), 1U);
    EXPECT_EQ(has(reports[0].text, "All ranks must make the same calls"), waited == 10) << reports[0].text;
    EXPECT_TRUE(has(reports[0].text, "rank 1 (host beta), which has submitted nothing yet")) << reports[0].text;
  }
  for (const int rank : {1, 2}) request(coordinator, rank, "grad", kStart + seconds(90));
  EXPECT_EQ(coordinator.take_entries(true).size(), 1U);
  request(coordinator, 0, "grad", kStart + seconds(100));  // another use
  EXPECT_TRUE(has(coordinator.check_stalls(kStart + seconds(110)).at(0).text, "'grad' has waited 10.0 s"));
}

TEST(Stall, IsNeverReportedWhenBothTimesAreZero) {
  Coordinator coordinator(three_ranks(seconds(0), seconds(0)));
  request(coordinator, 0, "grad", kStart);
  EXPECT_FALSE(coordinator.next_stall_check());
  EXPECT_TRUE(coordinator.check_stalls(kStart + seconds(100'000)).empty());
  EXPECT_TRUE(coordinator.take_entries(true).empty());
}

TEST(Stall, EndsWhenAllHaveCome) {
  Coordinator coordinator(three_ranks(seconds(10), seconds(20)));
  for (int rank = 0; rank < 3; ++rank) request(coordinator, rank, "grad", kStart);
  EXPECT_TRUE(coordinator.check_stalls(kStart + seconds(100)).empty());
  EXPECT_EQ(coordinator.take_entries(true).size(), 1U);
  EXPECT_FALSE(coordinator.next_stall_check());
}

TEST(Stall, FailsAfterTheShutdownTimeOnEveryRank) {
  Coordinator coordinator(three_ranks(seconds(0), seconds(20)));
  request(coordinator, 0, "grad", kStart);
  request(coordinator, 2, "grad", kStart + seconds(1));
  EXPECT_EQ(coordinator.next_stall_check(), kStart + seconds(20));
  EXPECT_TRUE(coordinator.check_stalls(kStart + seconds(20)).empty());
  auto entries = coordinator.take_entries(false);
  ASSERT_EQ(entries.size(), 1U);
  const auto failure = std::get<FailEntry>(entries.front());
  EXPECT_EQ(failure.kind, ErrorKind::kTimeout);
  EXPECT_EQ(targets_of(failure), (std::vector<std::int32_t>{0, 2}));
  EXPECT_TRUE(has(failure.text, "'grad' has waited 20.0 s for rank 1 (host beta)")) << failure.text;
  EXPECT_TRUE(has(failure.text, "Ranks that submitted it: 0, 2.")) << failure.text;
  EXPECT_TRUE(has(failure.text, "It has failed now.")) << failure.text;

  request(coordinator, 1, "grad", kStart + seconds(30));  // late: it hears the same
  entries = coordinator.take_entries(false);
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(std::get<FailEntry>(entries.front()).text, failure.text);
  EXPECT_EQ(targets_of(std::get<FailEntry>(entries.front())), (std::vector<std::int32_t>{1}));

  for (int rank = 0; rank < 3; ++rank) request(coordinator, rank, "grad", kStart + seconds(31));
  entries = coordinator.take_entries(true);
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<ExecuteEntry>(entries.front()));
}

// Ranks 0 and 2 know of an error and try again; rank 1 has not come even to the first use.
TEST(Stall, IsReportedOfTheUseAfterAnErrorToo) {
  Coordinator coordinator(three_ranks(seconds(10), seconds(20)));
  request(coordinator, 0, "grad", kStart);
  EXPECT_TRUE(coordinator.on_request(2, {"grad", allreduce({5}), true, true}, kStart).ok());
  EXPECT_EQ(coordinator.take_entries(true).size(), 1U);
  request(coordinator, 0, "grad", kStart + seconds(1));
  const auto reports = coordinator.check_stalls(kStart + seconds(11));
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].missing, (std::vector<int>{1, 2}));
  EXPECT_TRUE(coordinator.check_stalls(kStart + seconds(21)).empty());
  const auto entries = coordinator.take_entries(true);
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(targets_of(std::get<FailEntry>(entries.front())), (std::vector<std::int32_t>{0}));
}

TEST(Stall, ChecksTheOldestOfManyFirst) {
  Coordinator coordinator(three_ranks(seconds(10), seconds(0)));
  for (int i = 0; i < 5; ++i) request(coordinator, 0, "t" + std::to_string(i), kStart + seconds(i));
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(coordinator.next_stall_check(), kStart + seconds(10 + i));
    const auto reports = coordinator.check_stalls(kStart + seconds(10 + i));
    ASSERT_EQ(reports.size(), 1U);
    EXPECT_TRUE(has(reports[0].text, "'t" + std::to_string(i) + "'")) << reports[0].text;
  }
}

TEST(Stall, NamesNoMoreThanSixteenRanks) {
  CoordinatorOptions options;
  options.size = 100;
  options.stall.warning = seconds(1);
  Coordinator coordinator(options);
  request(coordinator, 0, "grad", kStart);
  const auto reports = coordinator.check_stalls(kStart + seconds(1));
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].missing.size(), 99U);
  EXPECT_TRUE(has(reports[0].text, "rank 16, which")) << reports[0].text;
  EXPECT_FALSE(has(reports[0].text, "rank 17, which")) << reports[0].text;
  EXPECT_TRUE(has(reports[0].text, "and 83 more")) << reports[0].text;
}

}  // namespace
}  // namespace ciranda::testing
