// Ranks that never come: they are named after the warning time, and what they miss fails after the shutdown time.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "agree/coordinator.hpp"
#include "agree/members.hpp"
#include "agree/signatures.hpp"
#include "agree/targets.hpp"
#include "text_matchers.hpp"

namespace ciranda::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint kSubmitted = TimePoint{} + seconds(1000);

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

TEST(Stall, IsReportedAfterTheWarningTime) {
  Coordinator coordinator(three_ranks(seconds(10), seconds(0)));
  EXPECT_FALSE(coordinator.next_stall_check());
  request(coordinator, 1, "warm-up", kSubmitted - seconds(5));
  request(coordinator, 0, "grad", kSubmitted);
  EXPECT_EQ(coordinator.next_stall_check(), kSubmitted + seconds(5));  // for "warm-up"
  EXPECT_TRUE(coordinator.check_stalls(kSubmitted + seconds(5) - milliseconds(1)).empty());
  ASSERT_EQ(coordinator.check_stalls(kSubmitted + seconds(5)).size(), 1U);
  EXPECT_EQ(coordinator.next_stall_check(), kSubmitted + seconds(10));
  const auto reports = coordinator.check_stalls(kSubmitted + seconds(10));
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].missing, (std::vector<int>{1, 2}));
  EXPECT_TRUE(contains(reports[0].text,
                       "'grad' has waited 10.0 s for rank 1 (host beta), which last submitted 'warm-up' "
                       "15.0 s ago, rank 2, which has submitted nothing yet. Ranks that submitted it: 0."))
      << reports[0].text;
}

// Of calls that all have met for a coarse clock tells the time, some milliseconds late.
TEST(Stall, TellsWhatWasHeardLastWhateverTheClocksSay) {
  Members members(2, {}, {});
  EXPECT_TRUE(contains(members.last_text(1, kSubmitted), "submitted nothing yet"));
  members.note_report(1, "reported", kSubmitted + milliseconds(3));
  members.note_report_of_all("met", kSubmitted);
  EXPECT_TRUE(contains(members.last_text(1, kSubmitted + seconds(2)), "last submitted 'met' 2.0 s ago"));
  members.note_report(1, "again", kSubmitted);
  EXPECT_TRUE(contains(members.last_text(1, kSubmitted + seconds(2)), "last submitted 'again'"));
  EXPECT_TRUE(contains(members.last_text(0, kSubmitted + seconds(2)), "last submitted 'met'"));
}

TEST(Stall, TellsOfCallsInDifferentOrders) {
  Coordinator coordinator(three_ranks(seconds(10), seconds(0)));
  request(coordinator, 0, "f", kSubmitted);
  request(coordinator, 2, "f", kSubmitted);
  request(coordinator, 1, "g", kSubmitted + seconds(1));
  auto reports = coordinator.check_stalls(kSubmitted + seconds(10));
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_TRUE(contains(reports[0].text, "Rank 1 has submitted 'g' instead, which rank 0 has not: these two"))
      << reports[0].text;
  reports = coordinator.check_stalls(kSubmitted + seconds(11));
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_TRUE(contains(reports[0].text, "'g' has waited")) << reports[0].text;
  EXPECT_TRUE(contains(reports[0].text, "Rank 0 has submitted 'f' instead, which rank 1 has not")) << reports[0].text;
}

TEST(Stall, FailsCallsInDifferentOrdersWhereThatIsAskedFor) {
  CoordinatorOptions options = three_ranks(seconds(10), seconds(600));
  options.fails_other_orders = true;
  Coordinator coordinator(options);
  request(coordinator, 1, "late", kSubmitted - seconds(1));
  for (const int rank : {0, 2}) request(coordinator, rank, "late", kSubmitted - seconds(1));
  (void)coordinator.take_entries(true);
  request(coordinator, 0, "f", kSubmitted);
  request(coordinator, 2, "f", kSubmitted);
  EXPECT_TRUE(coordinator.check_stalls(kSubmitted + seconds(9)).empty());
  request(coordinator, 1, "g", kSubmitted + seconds(9));
  EXPECT_TRUE(coordinator.check_stalls(kSubmitted + seconds(10)).empty());
  const auto entries = coordinator.take_entries(false);
  ASSERT_EQ(entries.size(), 2U);  // also what the others have not come to
  const auto first = std::get<FailEntry>(entries[0]);
  EXPECT_EQ(first.kind, ErrorKind::kMismatch);
  EXPECT_EQ(targets_of(first), (std::vector<std::int32_t>{0, 2}));
  EXPECT_TRUE(contains(first.text, "Rank 1 has submitted 'g' instead, which rank 0 has not")) << first.text;
  const auto second = std::get<FailEntry>(entries[1]);
  EXPECT_EQ(targets_of(second), (std::vector<std::int32_t>{1}));
  EXPECT_TRUE(contains(second.text, "Rank 0 has submitted 'f' instead, which rank 1 has not")) << second.text;
  EXPECT_FALSE(coordinator.next_stall_check());
}

TEST(Stall, DoesNotFailARankThatIsOnlyLate) {
  CoordinatorOptions options = three_ranks(seconds(10), seconds(600));
  options.fails_other_orders = true;
  Coordinator coordinator(options);
  for (const int rank : {0, 2}) request(coordinator, rank, "f", kSubmitted);
  EXPECT_EQ(coordinator.check_stalls(kSubmitted + seconds(10)).size(), 1U);
  EXPECT_TRUE(coordinator.take_entries(false).empty());
}

TEST(Stall, DoesNotTellSoOfARankThatIsOnlyAhead) {
  Coordinator coordinator(three_ranks(seconds(10), seconds(0)));
  for (const int rank : {0, 2}) request(coordinator, rank, "f", kSubmitted);
  request(coordinator, 0, "g", kSubmitted);
  for (const StallReport& report : coordinator.check_stalls(kSubmitted + seconds(10))) {
    EXPECT_FALSE(contains(report.text, "orders")) << report.text;
  }
}

TEST(Stall, IsReportedAgainInShortAfterTwiceTheTime) {
  Coordinator coordinator(three_ranks(seconds(10), seconds(0)));
  request(coordinator, 0, "grad", kSubmitted);
  for (const int waited : {10, 20, 40, 80}) {
    EXPECT_TRUE(coordinator.check_stalls(kSubmitted + seconds(waited) - milliseconds(1)).empty());
    const auto reports = coordinator.check_stalls(kSubmitted + seconds(waited));
    ASSERT_EQ(reports.size(), 1U);
    EXPECT_EQ(contains(reports[0].text, "All ranks must make the same calls"), waited == 10) << reports[0].text;
    EXPECT_TRUE(contains(reports[0].text, "rank 1 (host beta), which has submitted nothing yet")) << reports[0].text;
  }
  for (const int rank : {1, 2}) request(coordinator, rank, "grad", kSubmitted + seconds(90));
  EXPECT_EQ(coordinator.take_entries(true).size(), 1U);
  request(coordinator, 0, "grad", kSubmitted + seconds(100));  // another use
  EXPECT_TRUE(contains(coordinator.check_stalls(kSubmitted + seconds(110)).at(0).text, "'grad' has waited 10.0 s"));
}

TEST(Stall, IsNeverReportedWhenBothTimesAreZero) {
  Coordinator coordinator(three_ranks(seconds(0), seconds(0)));
  request(coordinator, 0, "grad", kSubmitted);
  EXPECT_FALSE(coordinator.next_stall_check());
  EXPECT_TRUE(coordinator.check_stalls(kSubmitted + seconds(100'000)).empty());
  EXPECT_TRUE(coordinator.take_entries(true).empty());
}

TEST(Stall, EndsWhenAllHaveCome) {
  Coordinator coordinator(three_ranks(seconds(10), seconds(20)));
  for (int rank = 0; rank < 3; ++rank) request(coordinator, rank, "grad", kSubmitted);
  EXPECT_TRUE(coordinator.check_stalls(kSubmitted + seconds(100)).empty());
  EXPECT_EQ(coordinator.take_entries(true).size(), 1U);
  EXPECT_FALSE(coordinator.next_stall_check());
}

TEST(Stall, FailsAfterTheShutdownTimeOnEveryRank) {
  Coordinator coordinator(three_ranks(seconds(0), seconds(20)));
  request(coordinator, 0, "grad", kSubmitted);
  request(coordinator, 2, "grad", kSubmitted + seconds(1));
  EXPECT_EQ(coordinator.next_stall_check(), kSubmitted + seconds(20));
  EXPECT_TRUE(coordinator.check_stalls(kSubmitted + seconds(20)).empty());
  auto entries = coordinator.take_entries(false);
  ASSERT_EQ(entries.size(), 1U);
  const auto failure = std::get<FailEntry>(entries.front());
  EXPECT_EQ(failure.kind, ErrorKind::kTimeout);
  EXPECT_EQ(targets_of(failure), (std::vector<std::int32_t>{0, 2}));
  EXPECT_TRUE(contains(failure.text, "'grad' has waited 20.0 s for rank 1 (host beta)")) << failure.text;
  EXPECT_TRUE(contains(failure.text, "Ranks that submitted it: 0, 2.")) << failure.text;
  EXPECT_TRUE(contains(failure.text, "It has failed now.")) << failure.text;

  request(coordinator, 1, "grad", kSubmitted + seconds(30));  // late: it hears the same
  entries = coordinator.take_entries(false);
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(std::get<FailEntry>(entries.front()).text, failure.text);
  EXPECT_EQ(targets_of(std::get<FailEntry>(entries.front())), (std::vector<std::int32_t>{1}));

  for (int rank = 0; rank < 3; ++rank) request(coordinator, rank, "grad", kSubmitted + seconds(31));
  entries = coordinator.take_entries(true);
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<ExecuteEntry>(entries.front()));
}

// Ranks 0 and 2 know of an error and try again; rank 1 has not come even to the first use.
TEST(Stall, IsReportedOfTheUseAfterAnErrorToo) {
  Coordinator coordinator(three_ranks(seconds(10), seconds(20)));
  request(coordinator, 0, "grad", kSubmitted);
  EXPECT_TRUE(coordinator.on_request(2, {"grad", allreduce({5}), true, true}, kSubmitted).ok());
  EXPECT_EQ(coordinator.take_entries(true).size(), 1U);
  request(coordinator, 0, "grad", kSubmitted + seconds(1));
  const auto reports = coordinator.check_stalls(kSubmitted + seconds(11));
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].missing, (std::vector<int>{1, 2}));
  EXPECT_TRUE(coordinator.check_stalls(kSubmitted + seconds(21)).empty());
  const auto entries = coordinator.take_entries(true);
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(targets_of(std::get<FailEntry>(entries.front())), (std::vector<std::int32_t>{0}));
}

TEST(Stall, ChecksTheOldestOfManyFirst) {
  Coordinator coordinator(three_ranks(seconds(10), seconds(0)));
  for (int i = 0; i < 5; ++i) request(coordinator, 0, "t" + std::to_string(i), kSubmitted + seconds(i));
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(coordinator.next_stall_check(), kSubmitted + seconds(10 + i));
    const auto reports = coordinator.check_stalls(kSubmitted + seconds(10 + i));
    ASSERT_EQ(reports.size(), 1U);
    EXPECT_TRUE(contains(reports[0].text, "'t" + std::to_string(i) + "'")) << reports[0].text;
  }
}

TEST(Stall, NamesNoMoreThanSixteenRanks) {
  CoordinatorOptions options;
  options.size = 100;
  options.stall.warning = seconds(1);
  Coordinator coordinator(options);
  request(coordinator, 0, "grad", kSubmitted);
  const auto reports = coordinator.check_stalls(kSubmitted + seconds(1));
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].missing.size(), 99U);
  EXPECT_TRUE(contains(reports[0].text, "rank 16, which")) << reports[0].text;
  EXPECT_FALSE(contains(reports[0].text, "rank 17, which")) << reports[0].text;
  EXPECT_TRUE(contains(reports[0].text, "and 83 more")) << reports[0].text;
}

}  // namespace
}  // namespace ciranda::testing
