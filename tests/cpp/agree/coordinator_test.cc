// Coordinator: what travels together, what is held back and let go, cache ids, the texts of errors, and bad reports.
#include "agree/coordinator.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "agree/signatures.hpp"
#include "agree/targets.hpp"

namespace ciranda::testing {
namespace {

constexpr TimePoint kNow{};
constexpr std::int64_t kMebi = 1 << 20;

CoordinatorOptions threshold(std::size_t n_bytes) {
  CoordinatorOptions options;
  options.fusion_threshold_bytes = n_bytes;
  return options;
}
CoordinatorOptions capacity(std::size_t n_cache_ids) {
  CoordinatorOptions options;
  options.cache_capacity = n_cache_ids;
  return options;
}
CoordinatorOptions hosts(std::vector<std::string> labels) {
  CoordinatorOptions options;
  options.hosts = std::move(labels);
  return options;
}

// A coordinator and the short ways to speak to it.
class Desk {
 public:
  explicit Desk(int size, CoordinatorOptions options = {})
      : size_(size), coordinator_(sized(size, std::move(options))) {}

  Coordinator& coordinator() { return coordinator_; }

  void request(int rank, const std::string& name, const Signature& signature, bool is_deferrable = false,
               bool is_cacheable = true) {
    expect_ok(coordinator_.on_request(rank, {name, signature, is_cacheable, is_deferrable}, kNow));
  }
  void request_by_all(const std::string& name, const Signature& signature, bool is_deferrable = false) {
    for (int rank = 0; rank < size_; ++rank) request(rank, name, signature, is_deferrable);
  }
  void urge_by_all(const std::string& name, const Signature& signature, std::int32_t priority,
                   bool is_deferrable = false) {
    for (int rank = 0; rank < size_; ++rank) {
      expect_ok(coordinator_.on_request(rank, {name, signature, true, is_deferrable, priority}, kNow));
    }
  }
  void ready(int rank, std::uint32_t cache_id, bool is_deferrable = true) {
    expect_ok(coordinator_.on_ready(rank, {{{cache_id, is_deferrable}}}, kNow));
  }
  void ready_by_all(std::uint32_t cache_id, bool is_deferrable = true) {
    for (int rank = 0; rank < size_; ++rank) ready(rank, cache_id, is_deferrable);
  }
  void duplicate(int rank, const std::string& name) {
    expect_ok(coordinator_.on_message(rank, DuplicateMessage{name}, kNow));
  }

  // The cache ids or, where they are defined, names of each entry; failures as "!text".
  std::vector<std::vector<std::string>> taken(bool wire_is_idle = true, std::size_t n_bytes_under_way = 0) {
    std::vector<std::vector<std::string>> out;
    for (const LogEntry& entry : coordinator_.take_entries(wire_is_idle, n_bytes_under_way)) {
      auto& row = out.emplace_back();
      if (const auto* failure = std::get_if<FailEntry>(&entry)) row.push_back("!" + failure->text);
      if (const auto* execute = std::get_if<ExecuteEntry>(&entry)) {
        for (const ExecuteItem& item : execute->items) {
          row.push_back(item.is_defined_here ? item.name : std::to_string(item.cache_id));
        }
      }
    }
    return out;
  }
  // REQUIRES: exactly one entry, a failure.
  FailEntry taken_failure() {
    const auto entries = coordinator_.take_entries(true);
    EXPECT_EQ(entries.size(), 1U);
    if (entries.size() != 1 || !std::holds_alternative<FailEntry>(entries.front())) return {};
    return std::get<FailEntry>(entries.front());
  }

 private:
  static CoordinatorOptions sized(int size, CoordinatorOptions options) {
    options.size = size;
    return options;
  }
  static void expect_ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); }

  int size_;
  Coordinator coordinator_;
};

using Rows = std::vector<std::vector<std::string>>;

// --- what travels together

TEST(Fusion, JoinsWhatIsReadyUpToTheThreshold) {
  Desk desk(2, threshold(100));
  for (const char* name : {"a", "b", "c"}) desk.request_by_all(name, allreduce({10}));  // 40 bytes each
  EXPECT_EQ(desk.taken(), (Rows{{"a", "b"}, {"c"}}));
}

TEST(Fusion, SendsAllAloneWithThresholdZero) {
  Desk desk(2, threshold(0));
  for (const char* name : {"a", "b"}) desk.request_by_all(name, allreduce({10}));
  EXPECT_EQ(desk.taken(), (Rows{{"a"}, {"b"}}));
}

TEST(Fusion, SendsWhatIsLargerThanTheThresholdAlone) {
  Desk desk(2, threshold(100));
  for (const char* name : {"a", "b"}) desk.request_by_all(name, allreduce({100}));
  EXPECT_EQ(desk.taken(), (Rows{{"a"}, {"b"}}));
}

TEST(Fusion, JoinsOnlyAllreducesOfTheSameKind) {
  Signature scaled = allreduce({4});
  scaled.prescale = 0.5;
  Signature scaled_after = allreduce({4});
  scaled_after.postscale = 0.5;
  const std::vector<Signature> different = {allreduce({4}),
                                            allreduce({4}, DataType::kFloat64),
                                            allreduce({4}, DataType::kFloat32, ReduceOp::kMax),
                                            scaled,
                                            scaled_after,
                                            allgather({4}),
                                            broadcast({4}, 0),
                                            barrier()};
  for (std::size_t i = 0; i < different.size(); ++i) {
    for (std::size_t j = 0; j < different.size(); ++j) {
      Desk desk(1);
      desk.request_by_all("a", different[i]);
      desk.request_by_all("b", different[j]);
      const bool joins = i == j && different[i].collective == Collective::kAllreduce;
      EXPECT_EQ(desk.taken(), joins ? (Rows{{"a", "b"}}) : (Rows{{"a"}, {"b"}})) << i << ", " << j;
    }
  }
}

// Else those absent from one would count as contributors of the other, or the other way round.
TEST(Fusion, JoinsOnlyWhatTheSameRanksAreAbsentFrom) {
  Desk desk(3);
  const auto request_by = [&desk](std::initializer_list<int> ranks, const std::string& name) {
    for (const int rank : ranks) desk.request(rank, name, allreduce({4}));
  };
  request_by({0, 1, 2}, "all");
  ASSERT_TRUE(desk.coordinator().on_join(2, {}).ok());
  request_by({0, 1}, "without 2");
  request_by({0, 1}, "also");
  ASSERT_TRUE(desk.coordinator().on_join(1, {}).ok());
  request_by({0}, "alone");
  std::vector<std::string> seen;
  for (const LogEntry& entry : desk.coordinator().take_entries(true)) {
    std::string& text = seen.emplace_back();
    for (const ExecuteItem& item : std::get<ExecuteEntry>(entry).items) {
      text += item.name + ":";
      for (const std::int32_t rank : item.absent) text += " " + std::to_string(rank);
      text += "; ";
    }
  }
  EXPECT_EQ(seen, (std::vector<std::string>{"all:; ", "without 2: 2; also: 2; ", "alone: 1 2; "}));
}

TEST(Fusion, LetsSmallThingsGatherWhileTheWireIsBusy) {
  Desk desk(1);
  desk.request_by_all("a", allreduce({kMebi / 2}));
  EXPECT_EQ(desk.taken(false), Rows{});
  desk.request_by_all("b", allreduce({kMebi / 2}));
  EXPECT_EQ(desk.taken(false), (Rows{{"a", "b"}}));  // 4 MiB
  desk.request_by_all("c", allreduce({1}));
  EXPECT_EQ(desk.taken(false), Rows{});
  EXPECT_EQ(desk.taken(true), (Rows{{"c"}}));
}

TEST(Fusion, TellsOfFailuresWhileTheWireIsBusy) {
  Desk desk(2);
  desk.request(0, "a", allreduce({1}));
  desk.request(1, "a", allreduce({2}));
  EXPECT_EQ(desk.taken(false).size(), 1U);
}

// --- cache ids

TEST(CacheIds, AreGivenWithTheFirstUseAndUsedFromThen) {
  Desk desk(2);
  desk.request_by_all("a", allreduce({4}));
  desk.request_by_all("b", allreduce({4}));
  EXPECT_EQ(desk.taken(), (Rows{{"a", "b"}}));
  desk.ready_by_all(1, false);
  desk.ready_by_all(0, false);
  EXPECT_EQ(desk.taken(), (Rows{{"1", "0"}}));
}

TEST(CacheIds, AreDefinedAgainWhenOneRankGathersDifferently) {
  Desk desk(2);
  desk.request(0, "g", allgather({1, 2}));
  desk.request(1, "g", allgather({5, 2}));
  desk.taken();
  desk.ready(0, 0);
  desk.request(1, "g", allgather({7, 2}));
  const auto entries = desk.coordinator().take_entries(true);
  ASSERT_EQ(entries.size(), 1U);
  const ExecuteItem& item = std::get<ExecuteEntry>(entries.front()).items.front();
  EXPECT_TRUE(item.is_defined_here);
  EXPECT_EQ(item.cache_id, 0U);
  EXPECT_EQ(item.first_dims, (std::vector<std::vector<std::int64_t>>{{1, 7}}));
}

TEST(CacheIds, AreNotGivenBeyondTheCapacityNorToMadeUpNames) {
  Desk desk(1, capacity(1));
  desk.request(0, "made up", allreduce({1}), false, false);
  desk.request(0, "a", allreduce({2}));
  desk.request(0, "b", allreduce({3}));
  std::vector<std::uint32_t> cache_ids;
  const std::vector<LogEntry> entries = desk.coordinator().take_entries(true);
  for (const LogEntry& entry : entries) {
    const auto* executed = std::get_if<ExecuteEntry>(&entry);
    if (executed == nullptr) continue;
    for (const ExecuteItem& item : executed->items) cache_ids.push_back(item.cache_id);
  }
  EXPECT_EQ(cache_ids, (std::vector<std::uint32_t>{kNoCacheId, 0, kNoCacheId}));
  EXPECT_EQ(std::get<ForgetEntry>(entries.back()).cache_ids, std::vector<std::uint32_t>{0});
}

class Forgetting : public ::testing::Test {
 protected:
  struct Done {
    std::uint32_t cache_id = kNoCacheId;
    std::vector<std::uint32_t> to_forget;
  };

  // All ranks call it.
  Done use(const std::string& name) {
    desk_.request_by_all(name, allreduce({4}));
    Done done;
    for (const LogEntry& entry : desk_.coordinator().take_entries(true)) {
      if (const auto* executed = std::get_if<ExecuteEntry>(&entry)) done.cache_id = executed->items.front().cache_id;
      if (const auto* forget = std::get_if<ForgetEntry>(&entry)) done.to_forget = forget->cache_ids;
    }
    return done;
  }
  void have_forgotten(int rank, std::vector<std::uint32_t> kept = {}) {
    EXPECT_TRUE(desk_.coordinator().on_forgotten(rank, {std::move(kept)}).ok());
  }

  Desk desk_{2, capacity(2)};
};

TEST_F(Forgetting, GivesTheCacheIdThatWasNotUsedForLongest) {
  EXPECT_EQ(use("a").cache_id, 0U);
  EXPECT_EQ(use("b").cache_id, 1U);
  EXPECT_EQ(use("a").cache_id, 0U);
  EXPECT_EQ(use("c").to_forget, std::vector<std::uint32_t>{1});
  have_forgotten(1);
  EXPECT_EQ(use("d").cache_id, kNoCacheId) << "rank 0 may still say it and mean b";
  have_forgotten(0);
  EXPECT_EQ(use("e").cache_id, 1U);
  EXPECT_EQ(use("a").cache_id, 0U);
  const Done again = use("b");
  EXPECT_EQ(again.cache_id, kNoCacheId);
  EXPECT_EQ(again.to_forget, std::vector<std::uint32_t>{1}) << "e";
}

TEST_F(Forgetting, LeavesWhatARankHasACallOf) {
  use("a");
  use("b");
  EXPECT_EQ(use("c").to_forget, std::vector<std::uint32_t>{0});
  have_forgotten(0);
  have_forgotten(1, {0});
  EXPECT_EQ(use("a").cache_id, 0U);
  EXPECT_EQ(use("d").to_forget, std::vector<std::uint32_t>{1}) << "a was used since";
}

TEST_F(Forgetting, LeavesWhatIsUsedMeanwhile) {
  use("a");
  use("b");
  EXPECT_EQ(use("c").to_forget, std::vector<std::uint32_t>{0});
  EXPECT_EQ(use("a").cache_id, 0U);
  have_forgotten(0);
  have_forgotten(1);
  EXPECT_EQ(use("d").cache_id, kNoCacheId);
  EXPECT_EQ(use("a").cache_id, 0U);
}

TEST_F(Forgetting, IsAnsweredOnce) {
  EXPECT_FALSE(desk_.coordinator().on_forgotten(1, {}).ok());
  for (const char* name : {"a", "b", "c"}) use(name);
  have_forgotten(1);
  EXPECT_FALSE(desk_.coordinator().on_forgotten(1, {}).ok());
  EXPECT_FALSE(desk_.coordinator().on_forgotten(0, {{99}}).ok());
}

// However many names there have been, the latest have cache ids.
TEST_F(Forgetting, GoesOnForEver) {
  int n_with_cache_id = 0;
  for (int i = 0; i < 1000; ++i) {
    const Done done = use("name " + std::to_string(i));
    n_with_cache_id += done.cache_id != kNoCacheId ? 1 : 0;
    if (done.to_forget.empty()) continue;
    have_forgotten(0);
    have_forgotten(1);
  }
  EXPECT_GE(n_with_cache_id, 500);
}

TEST(CacheIds, ThatWereNeverGivenAreRefused) {
  Desk desk(2);
  const Status status = desk.coordinator().on_ready(1, {{{0, true}}}, kNow);
  EXPECT_EQ(status.kind(), ErrorKind::kInternal);
  EXPECT_EQ(status.message(), "rank 1 reported cache id 0 of only 0");
}

// --- priorities

// Two ranks. What is given out in advance is 4 MiB.
class Priorities : public ::testing::Test {
 protected:
  static Signature mebis(std::int64_t n) { return allreduce({n * kMebi / 4}); }
  void urge(const std::string& name, std::int64_t n_mebi, std::int32_t priority) {
    desk_.urge_by_all(name, mebis(n_mebi), priority);
  }
  // While `n_mebi` that were given out are not carried out yet.
  Rows taken_beside(std::size_t n_mebi) { return desk_.taken(false, n_mebi << 20U); }

  Desk desk_{2};
};

TEST_F(Priorities, LetTheMostUrgentGoFirst) {
  urge("a", 1, -1);
  urge("b", 1, 0);
  urge("c", 1, 7);
  urge("d", 1, 0);
  EXPECT_EQ(desk_.taken(), (Rows{{"c", "b", "d", "a"}}));
}

TEST_F(Priorities, LetWhatComesLaterOvertakeWhatIsNotUnderWay) {
  for (const char* name : {"a", "b", "c", "d"}) urge(name, 2, 1);
  EXPECT_EQ(desk_.taken(), (Rows{{"a", "b"}}));
  urge("e", 2, 2);
  EXPECT_EQ(taken_beside(4), Rows{});
  EXPECT_EQ(taken_beside(2), (Rows{{"e"}}));
  EXPECT_EQ(desk_.taken(), (Rows{{"c", "d"}}));
}

TEST_F(Priorities, LetOneThatIsLargerThanAllThatGoesInAdvanceGoAlone) {
  urge("a", 9, 1);
  urge("b", 1, 0);
  EXPECT_EQ(taken_beside(1), Rows{});
  EXPECT_EQ(desk_.taken(), (Rows{{"a"}}));
  EXPECT_EQ(desk_.taken(), (Rows{{"b"}}));
}

TEST_F(Priorities, ChangeWithACall) {
  urge("a", 3, 0);
  urge("b", 3, 1);
  EXPECT_EQ(desk_.taken(), Rows{{"b"}});
  EXPECT_EQ(desk_.taken(), Rows{{"a"}});
  urge("a", 3, 2);
  desk_.ready_by_all(0);  // b, as before
  EXPECT_EQ(desk_.taken(), Rows{{"a"}});
  EXPECT_EQ(desk_.taken(), Rows{{"0"}});
}

TEST_F(Priorities, HoldNothingBackWhereThereAreNone) {
  for (const char* name : {"a", "b", "c"}) urge(name, 3, 0);
  EXPECT_EQ(desk_.taken(), (Rows{{"a", "b", "c"}}));
  for (const std::uint32_t cache_id : {0U, 1U, 2U}) desk_.ready_by_all(cache_id);
  EXPECT_EQ(taken_beside(100), (Rows{{"0", "1", "2"}}));
}

// What is left of a group that was complete is not held for those of it that have gone.
TEST_F(Priorities, CutGroupsOfTheLearnedOrder) {
  desk_.urge_by_all("a", allreduce({kMebi / 8}), 1, true);  // with b more than 1 MiB
  desk_.urge_by_all("b", mebis(4), 2, true);
  desk_.taken();
  desk_.taken();
  for (int step = 0; step < 2; ++step) {
    for (const std::uint32_t cache_id : {1U, 0U}) desk_.ready_by_all(cache_id);
    desk_.coordinator().on_waiting(0);
    desk_.taken();
    desk_.taken();
  }
  desk_.ready_by_all(1);
  EXPECT_EQ(desk_.taken(), Rows{});  // it is held for the other
  desk_.ready_by_all(0);
  EXPECT_EQ(desk_.taken(), (Rows{{"0"}}));
  EXPECT_EQ(desk_.taken(), (Rows{{"1"}}));
}

// --- groups in the learned order

// Two ranks that have made three deferrable 600 KiB tensors twice over: planned as {0, 1}, {2}.
class Groups : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"a", "b", "c"}) desk_.request_by_all(name, allreduce({150 * 1024}), true);
    desk_.taken();
    for (int step = 0; step < 2; ++step) {
      for (const std::uint32_t cache_id : {0U, 1U, 2U}) desk_.ready_by_all(cache_id);
      desk_.coordinator().on_waiting(0);
      desk_.taken();
    }
  }
  Desk desk_{2};
};

TEST_F(Groups, AreHeldUntilComplete) {
  desk_.ready_by_all(0);
  EXPECT_EQ(desk_.taken(), Rows{});
  desk_.ready(0, 1);
  EXPECT_EQ(desk_.taken(), Rows{});
  desk_.ready(1, 1);
  EXPECT_EQ(desk_.taken(), (Rows{{"0", "1"}}));
  desk_.ready_by_all(2);
  EXPECT_EQ(desk_.taken(), (Rows{{"2"}}));
}

TEST_F(Groups, AreLetGoWhenARankWaits) {
  desk_.ready_by_all(0);
  EXPECT_EQ(desk_.taken(), Rows{});
  desk_.coordinator().on_waiting(1);
  EXPECT_EQ(desk_.taken(), (Rows{{"0"}}));
}

TEST_F(Groups, AreHeldAgainWhenTheWaitingRankGoesOnAndLetGoWhenItSaysSoAgain) {
  desk_.ready(0, 0);
  desk_.coordinator().on_waiting(1);
  desk_.ready(1, 0);  // another thread of rank 1
  EXPECT_EQ(desk_.taken(), Rows{});
  desk_.coordinator().on_waiting(1);
  desk_.coordinator().on_waiting(1);
  EXPECT_EQ(desk_.taken(), (Rows{{"0"}}));
}

TEST_F(Groups, DoNotHoldWhatSomeRankCannotDefer) {
  desk_.ready(0, 0);
  desk_.ready(1, 0, false);
  EXPECT_EQ(desk_.taken(), (Rows{{"0"}}));
}

TEST_F(Groups, HoldAgainWhatCouldNotBeDeferredBefore) {
  desk_.ready_by_all(0, false);
  EXPECT_EQ(desk_.taken(), (Rows{{"0"}}));
  desk_.ready_by_all(1);
  desk_.ready_by_all(2);
  desk_.coordinator().on_waiting(0);
  EXPECT_EQ(desk_.taken(), (Rows{{"1", "2"}}));
  desk_.ready_by_all(0);
  EXPECT_EQ(desk_.taken(), Rows{});
}

TEST_F(Groups, AreHeldInEveryStep) {
  for (int step = 0; step < 3; ++step) {
    desk_.ready_by_all(0);
    EXPECT_EQ(desk_.taken(), Rows{}) << step;
    desk_.ready_by_all(1);
    EXPECT_EQ(desk_.taken(), (Rows{{"0", "1"}})) << step;
    desk_.ready_by_all(2);
    EXPECT_EQ(desk_.taken(), (Rows{{"2"}})) << step;
  }
}

TEST_F(Groups, AreForgottenWhenAStrangerComes) {
  desk_.ready_by_all(0);
  EXPECT_EQ(desk_.taken(), Rows{});
  desk_.request_by_all("d", allreduce({4}));
  EXPECT_EQ(desk_.taken(), (Rows{{"d"}}));  // "d" has no cache id yet: no stranger
  desk_.ready_by_all(3);
  EXPECT_EQ(desk_.taken(), (Rows{{"0", "3"}}));
}

TEST_F(Groups, FailLikeAnythingElse) {
  desk_.ready_by_all(0);
  desk_.duplicate(1, "a");
  EXPECT_EQ(targets_of(desk_.taken_failure()), (std::vector<std::int32_t>{0, 1, 1}));
  desk_.ready_by_all(1);
  desk_.coordinator().on_waiting(0);
  EXPECT_EQ(desk_.taken(), (Rows{{"1"}}));
}

// --- errors

TEST(Disagreement, IsToldToThoseWhoCameAndThenToTheOthers) {
  Desk desk(3, hosts({"alpha", "beta", "gamma"}));
  desk.request(2, "grad", allreduce({4}));
  desk.request(0, "grad", allreduce({5}));
  const FailEntry first = desk.taken_failure();
  EXPECT_EQ(first.name, "grad");
  EXPECT_EQ(first.kind, ErrorKind::kMismatch);
  EXPECT_EQ(targets_of(first), (std::vector<std::int32_t>{0, 2}));
  EXPECT_EQ(first.text,
            "Ranks disagree about 'grad': shape [5] on rank 0 but [4] on rank 2. Every rank must make the "
            "same call for a name.");
  desk.request(0, "grad", allreduce({4}));  // the next use, of those who know already
  desk.request(2, "grad", allreduce({4}));
  EXPECT_EQ(desk.taken(), Rows{});
  desk.request(1, "grad", allreduce({4}));
  const FailEntry second = desk.taken_failure();
  EXPECT_EQ(targets_of(second), (std::vector<std::int32_t>{1}));
  EXPECT_EQ(second.text, first.text);
  desk.request(1, "grad", allreduce({4}));
  EXPECT_EQ(desk.taken(), (Rows{{"grad"}}));
}

// One entry answers all that have called since the log was last written; the errors of a rank keep their order.
TEST(Disagreement, IsToldToManyAtOnce) {
  Desk desk(5);
  desk.request(0, "a", allreduce({4}));
  desk.request(3, "a", allreduce({5}));
  for (const int rank : {4, 1}) desk.request(rank, "a", allreduce({4}));
  const FailEntry first = desk.taken_failure();
  EXPECT_EQ(first.targets, (std::vector<RankRange>{{0, 1}, {3, 4}}));
  desk.request(4, "a", allreduce({7}));
  desk.request(1, "a", allreduce({8}));
  desk.request(0, "a", allreduce({7}));
  const std::string second = desk.taken_failure().text;
  EXPECT_NE(second, first.text);
  desk.request(3, "a", allreduce({7}));
  desk.request(2, "a", allreduce({4}));
  desk.request(2, "a", allreduce({7}));
  EXPECT_EQ(desk.taken(), (Rows{{"!" + second}, {"!" + first.text}, {"!" + second}}));
}

// As above, where nothing is known of the name in between.
TEST(Disagreement, OfNamesWithoutCacheIdKeepTheirOrder) {
  Desk desk(2);
  const auto disagree = [&desk](std::int64_t size) {
    desk.request(0, "a", allreduce({4}), false, false);
    desk.request(1, "a", allreduce({size}), false, false);
  };
  for (const std::int64_t size : {5, 6, 5}) disagree(size);
  const auto rows = desk.taken();
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0], rows[2]);
  EXPECT_NE(rows[0], rows[1]);
}

// A rank that reports a cache id said nothing of its shape this time; what it had last time is what is named.
TEST(Disagreement, NamesTheFirstDimensionOfTheRankItself) {
  Desk desk(2);
  desk.request(0, "g", allgather({1, 2}));
  desk.request(1, "g", allgather({5, 2}));
  desk.taken();
  desk.request(0, "g", allgather({1, 3}));
  desk.ready(1, 0);
  EXPECT_NE(desk.taken_failure().text.find("shape [1, 3] on rank 0 but [5, 2] on rank 1"), std::string::npos);
}

TEST(Duplicate, FailsTheFirstUseTooAndIsOwedByTheOthers) {
  Desk desk(2, hosts({"", "beta"}));
  desk.request(1, "a", allreduce({4}));
  desk.duplicate(1, "a");
  const FailEntry first = desk.taken_failure();
  EXPECT_EQ(first.kind, ErrorKind::kInvalidArgument);
  EXPECT_EQ(targets_of(first), (std::vector<std::int32_t>{1, 1}));
  EXPECT_EQ(first.text,
            "Duplicate name 'a': rank 1 (host beta) submitted it again while its first use was still "
            "pending. Wait for the first one, or give each its own name.");
  for (int call = 0; call < 2; ++call) {
    desk.request(0, "a", allreduce({4}));
    const FailEntry owed = desk.taken_failure();
    EXPECT_EQ(targets_of(owed), (std::vector<std::int32_t>{0}));
    EXPECT_EQ(owed.text, first.text);
  }
  desk.request_by_all("a", allreduce({4}));
  EXPECT_EQ(desk.taken(), (Rows{{"a"}}));
}

// Rank 0 alone repeated a call; once all ranks have gone on together, rank 1's next call is no late part of that.
TEST(Duplicate, OfOneRankIsForgivenOnceAllHaveGoneOn) {
  for (const int n_repeats : {1, 2, 3}) {
    for (const bool is_cacheable : {true, false}) {
      Desk desk(2);
      desk.request(0, "a", allreduce({4}), false, is_cacheable);
      for (int i = 0; i < n_repeats; ++i) desk.duplicate(0, "a");
      desk.request(1, "a", allreduce({4}), false, is_cacheable);
      desk.taken();
      desk.request_by_all("b", allreduce({4}));
      EXPECT_EQ(desk.taken(), (Rows{{"b"}}));
      desk.request_by_all("a", allreduce({4}));
      EXPECT_EQ(desk.taken(), (Rows{{"a"}})) << n_repeats << " repeats";
    }
  }
}

TEST(Duplicate, AfterTheFirstUseWasCarriedOutFailsAlone) {
  Desk desk(2);
  desk.request_by_all("a", allreduce({4}));
  EXPECT_EQ(desk.taken(), (Rows{{"a"}}));
  desk.duplicate(0, "a");
  EXPECT_EQ(targets_of(desk.taken_failure()), (std::vector<std::int32_t>{0}));
  desk.ready(1, 0);
  EXPECT_EQ(targets_of(desk.taken_failure()), (std::vector<std::int32_t>{1}));
  desk.ready_by_all(0);
  EXPECT_EQ(desk.taken(), (Rows{{"0"}}));
}

TEST(Duplicate, InAWorldOfOneFailsBoth) {
  Desk desk(1);
  desk.request(0, "a", allreduce({4}));
  desk.duplicate(0, "a");
  EXPECT_EQ(targets_of(desk.taken_failure()), (std::vector<std::int32_t>{0, 0}));
  desk.request(0, "a", allreduce({4}));
  EXPECT_EQ(desk.taken(), (Rows{{"a"}}));
}

// --- the end of a lane

TEST(FailAll, FailsWhatIsOpenAndWhatIsReady) {
  Desk desk(2);
  desk.request_by_all("known", allreduce({4}));
  EXPECT_EQ(desk.taken(), (Rows{{"known"}}));
  desk.request(0, "open", allreduce({4}));
  desk.request_by_all("ready", allreduce({4}));
  desk.coordinator().fail_all(Status::ranks_lost("rank 1 is gone"));
  std::vector<std::vector<std::string>> rows = desk.taken();
  EXPECT_EQ(rows, (Rows{{"!rank 1 is gone"}, {"!rank 1 is gone"}}));
  desk.request_by_all("ready", allreduce({4}));  // owed to nobody: both had reported it
  EXPECT_EQ(desk.taken(), (Rows{{"ready"}}));
}

// --- reports that no participant makes

TEST(Direct, IsTheNextCallOfWhatNobodyHeldBack) {
  CoordinatorOptions options;
  options.direct = Direct::kInMemory;
  Desk desk(2, options);
  const auto after = [&desk](const std::string& name, const Signature& of_first, const Signature& of_second,
                             bool is_deferrable, bool is_cacheable) {
    desk.request(0, name, of_first, is_deferrable, is_cacheable);
    desk.request(1, name, of_second, false, is_cacheable);
    const std::vector<LogEntry> entries = desk.coordinator().take_entries(true);
    return std::get<ExecuteEntry>(entries.at(0)).items.at(0).direct;
  };
  const auto next = [&](const std::string& name, bool is_deferrable, bool is_cacheable) {
    return after(name, allreduce({4}), allreduce({4}), is_deferrable, is_cacheable);
  };
  EXPECT_EQ(next("a", false, true), Direct::kInMemory);
  EXPECT_EQ(next("a", true, true), Direct::kNot);
  EXPECT_EQ(next("noname.1", false, false), Direct::kInMemory);
  EXPECT_EQ(after("noname.4", allgather({2}), allgather({2}), false, false), Direct::kInMemory);
  EXPECT_EQ(after("noname.5", allgather({2}), allgather({3}), false, false), Direct::kNot) << "the rows differ";
  desk.request(0, "noname.3", allreduce({4}), false, false);
  EXPECT_EQ(next("noname.2", false, false), Direct::kNot) << "the next is reported already";
}

TEST(Pressing, IsWhatTheCoordinatorsRankHasCalledTooAndSomebodyWaitsFor) {
  Desk desk(3);
  const auto is_pressing = [&desk] { return desk.coordinator().has_pressing_call(); };
  desk.request(1, "x", allreduce({4}));
  EXPECT_FALSE(is_pressing()) << "the coordinator's rank works on";
  desk.request(0, "x", allreduce({4}), true);
  EXPECT_TRUE(is_pressing());
  desk.request(0, "y", allreduce({4}), true);
  desk.request(1, "y", allreduce({4}), true);
  desk.request(2, "x", allreduce({4}));
  desk.coordinator().take_entries(true);
  EXPECT_FALSE(is_pressing()) << "nobody waits for y";
  desk.request(2, "y", allreduce({5}));
  EXPECT_FALSE(is_pressing()) << "it has failed";
}

TEST(BadReport, OfAnImpossibleRequestIsRefused) {
  const std::vector<Signature> impossible = {
      allgather({}),
      allreduce({-1}),
      allreduce({std::int64_t{1} << 40, std::int64_t{1} << 40}),
      broadcast({4}, 2),
      broadcast({4}, -1),
      Signature{},
      allreduce({4}, DataType::kBool),
  };
  for (std::size_t i = 0; i < impossible.size(); ++i) {
    Desk desk(2);
    const Status status = desk.coordinator().on_request(0, {"a", impossible[i], true, true}, kNow);
    EXPECT_EQ(status.kind(), ErrorKind::kInternal) << i;
  }
}

TEST(BadReport, TwiceInARowIsRefused) {
  Desk desk(2);
  desk.request(1, "a", allreduce({4}));
  EXPECT_EQ(desk.coordinator().on_request(1, {"a", allreduce({4}), true, true}, kNow).kind(), ErrorKind::kInternal);
}

TEST(BadReport, AfterJoiningIsRefused) {
  Desk desk(2);
  EXPECT_TRUE(desk.coordinator().on_join(1, {}).ok());
  const Status status = desk.coordinator().on_request(1, {"a", allreduce({4}), true, true}, kNow);
  EXPECT_EQ(status.message(), "rank 1 reported 'a' after it had joined");
  EXPECT_TRUE(desk.coordinator().on_join(1, {}).ok()) << "it may say so again";
  EXPECT_EQ(desk.coordinator().on_join(1, {2}).message(),
            "rank 1 joins for the 2. time, where all have joined 0 times");
}

TEST(BadReport, OfACacheIdThatIsNotThereIsRefused) {
  Desk desk(2);
  const Status status = desk.coordinator().on_ready(1, {{{3, true}}}, kNow);
  EXPECT_EQ(status.message(), "rank 1 reported cache id 3 of only 0");
}

// It reports nothing but that it has come, and of the log there is nothing: yet the name is in use.
TEST(CacheIds, AreUsedByDirectRounds) {
  CoordinatorOptions options = capacity(2);
  options.direct = Direct::kByMessages;
  Desk desk(2, options);
  for (const char* name : {"a", "b"}) {
    desk.request_by_all(name, allreduce({4}));
    (void)desk.coordinator().take_entries(true);
  }
  for (const int rank : {0, 1}) EXPECT_TRUE(desk.coordinator().on_input(rank, {0, 1, {}}, kNow).ok());
  EXPECT_TRUE(desk.coordinator().take_entries(true).empty());
  desk.request_by_all("c", allreduce({4}));
  const auto entries = desk.coordinator().take_entries(true);
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(std::get<ForgetEntry>(entries[1]).cache_ids, (std::vector<std::uint32_t>{1}));
}

TEST(Coordinator, NotesForWhomTheFirstRankOfACallHasWaited) {
  using std::chrono::seconds;
  Coordinator coordinator([] {
    CoordinatorOptions options;
    options.size = 3;
    return options;
  }());
  EXPECT_TRUE(coordinator.on_request(1, {"a", allreduce({4}), true, false}, kNow).ok());
  EXPECT_TRUE(coordinator.on_request(0, {"a", allreduce({4}), true, false}, kNow + seconds(1)).ok());
  EXPECT_TRUE(coordinator.take_held_up().empty());
  EXPECT_TRUE(coordinator.on_request(2, {"a", allreduce({4}), true, false}, kNow + seconds(3)).ok());
  const std::vector<HeldUp> found = coordinator.take_held_up();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].last, 2);
  EXPECT_EQ(found[0].until - found[0].from, seconds(3));
  EXPECT_TRUE(coordinator.take_held_up().empty());
}

}  // namespace
}  // namespace ciranda::testing
