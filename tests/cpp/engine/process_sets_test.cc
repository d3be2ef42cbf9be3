// Process sets, pairs, lanes and joining: who takes part, in which order, and what nobody waits for.
#include "agree/process_sets.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <latch>
#include <numeric>
#include <random>
#include <vector>

#include "engine/sets.hpp"
#include "engine/watchdog.hpp"
#include "engine/world.hpp"

namespace ciranda {
namespace {

using testing::add_set;
using testing::bare;
using testing::kLayouts;
using testing::Layout;
using testing::options_for;
using testing::request;
using testing::World;
using testing::WorldOptions;

Status remove_set(Engine& engine, std::uint32_t id) {
  return engine.wait(submit_request(engine, bare(Collective::kRemoveProcessSet, {id})));
}

Request sum_of(std::vector<double>& values, std::string name, std::uint32_t set = 0, std::uint32_t lane = 0) {
  Request r = request(Collective::kAllreduce, std::move(name), DataType::kFloat64,
                      {static_cast<std::int64_t>(values.size())}, values.data());
  r.process_set = set;
  r.lane = lane;
  return r;
}

// The sum of this rank's number + 1 over a set; -1 if that failed.
double sum_in(Engine& engine, std::uint32_t set, const std::string& name, std::size_t count = 3) {
  std::vector<double> values(count, engine.rank() + 1);
  const Status status = engine.wait(submit_request(engine, sum_of(values, name, set)));
  EXPECT_TRUE(status.ok()) << status.message();
  return status.ok() ? values.back() : -1;
}

bool is_in(const Engine& engine, const std::vector<std::int64_t>& ranks) {
  return std::find(ranks.begin(), ranks.end(), engine.rank()) != ranks.end();
}

double expected_sum(const std::vector<std::int64_t>& ranks) {
  return static_cast<double>(std::accumulate(ranks.begin(), ranks.end(), std::int64_t{0})) +
         static_cast<double>(ranks.size());
}

class SetsTest : public ::testing::TestWithParam<Layout> {
 protected:
  WorldOptions options(int size) const { return options_for(GetParam(), size); }
};

TEST_P(SetsTest, AreOfAnyRanksAndGetTheSameNumberEverywhere) {
  World world(4, options(4));
  const std::vector<std::vector<std::int64_t>> sets{{0, 2}, {1, 3}, {3}, {0, 1, 3}, {1, 2, 3}};
  world.run([&](Engine& engine) {
    for (std::size_t i = 0; i < sets.size(); ++i) {
      const std::uint32_t id = add_set(engine, sets[i]);
      ASSERT_EQ(id, i + 1);
      ASSERT_EQ(engine.ranks_of(id), std::vector<int>(sets[i].begin(), sets[i].end()));
      for (int step = 0; step < 3 && is_in(engine, sets[i]); ++step) {
        for (const std::size_t count : {1U, 1000U, 200'000U}) {
          ASSERT_EQ(sum_in(engine, id, "x" + std::to_string(count), count), expected_sum(sets[i]));
        }
      }
    }
    EXPECT_EQ(sum_in(engine, 0, "world"), 10);
  });
}

// Each rank works through its sets in an order of its own; nobody may wait for somebody else's order.
TEST_P(SetsTest, ThatOverlapNeverDeadlock) {
  World world(4, options(4));
  const std::vector<std::vector<std::int64_t>> sets{{0, 1}, {1, 2}, {2, 3}, {0, 3}, {0, 1, 2}, {1, 2, 3}};
  world.run([&](Engine& engine) {
    for (const auto& ranks : sets) add_set(engine, ranks);
    std::mt19937 random(static_cast<unsigned>(engine.rank()));
    for (int round = 0; round < 30; ++round) {
      std::vector<std::uint32_t> order(sets.size() + 1);
      std::iota(order.begin(), order.end(), 0U);
      std::shuffle(order.begin(), order.end(), random);
      std::vector<std::vector<double>> values;
      std::vector<Engine::OperationPtr> operations;
      values.reserve(order.size());
      for (const std::uint32_t set : order) {
        if (set > 0 && !is_in(engine, sets[set - 1])) continue;
        values.emplace_back(round % 3 == 0 ? 50'000 : 5, engine.rank() + 1);
        operations.push_back(submit_request(engine, sum_of(values.back(), "x", set)));
      }
      for (const auto& operation : operations) {
        const Status status = engine.wait(operation);
        ASSERT_TRUE(status.ok()) << status.message();
      }
      std::size_t next = 0;
      for (const std::uint32_t set : order) {
        if (set > 0 && !is_in(engine, sets[set - 1])) continue;
        ASSERT_EQ(values[next++].back(), set == 0 ? 10 : expected_sum(sets[set - 1]));
      }
    }
  });
}

// What a rank says in a set may come before the news of the set, which goes another way: through relays, of which one
// is held up. Rank 3 hears the news together with what was said later.
TEST(EarlyMessagesTest, AreHeardBeforeTheLaterOnesOfTheirSet) {
  const testing::Watchdog watchdog("early messages");
  WorldOptions options;
  options.fabric.hosts = {"a", "a", "b", "b", "c", "c"};
  options.config.relays = true;
  options.config.spin_microseconds = 0;
  // They outlive the world, whose callbacks may still be leaving them when the ranks have returned.
  std::latch rank_3_is_held(1);
  std::latch rank_5_has_joined(1);
  std::latch news_is_passed_on(1);
  World world(6, options);
  world.run([&](Engine& engine) {
    const int self = engine.rank();
    const auto meet = [&engine](int other, const Operation::Callback& callback = nullptr) {
      std::vector<double> values(3, 1);
      const Status status =
          engine.wait(submit_request(engine, sum_of(values, "pair", engine.pair_with(other)), callback));
      EXPECT_TRUE(status.ok()) << status.message();
    };
    const auto hold_relay = [&](auto&&...) { rank_5_has_joined.wait(); };
    const auto hold_rank_3 = [&](auto&&...) {
      rank_3_is_held.count_down();
      news_is_passed_on.wait();
    };
    const auto added = submit_request(engine, bare(Collective::kAddProcessSet, {3, 5}),
                                      self == 2 ? Operation::Callback(hold_relay) : Operation::Callback());
    if (self == 3) meet(5, hold_rank_3);
    ASSERT_TRUE(engine.wait(added).ok());
    if (self == 2) {  // an iteration after that in which it was held
      meet(0);
      news_is_passed_on.count_down();
    }
    if (self == 0) meet(2);
    if (self == 4) meet(5);
    if (self != 3 && self != 5) return;
    const auto set = static_cast<std::uint32_t>(added->value());
    std::vector<double> values(3, self + 1);
    const auto sum = submit_request(engine, sum_of(values, "x", set));
    std::vector<double> token(3, 1);
    Engine::OperationPtr hold;
    if (self == 5) {
      hold = submit_request(engine, sum_of(token, "pair", engine.pair_with(3)));
      rank_3_is_held.wait();
    }
    Request join = bare(Collective::kJoin);
    join.process_set = set;
    const auto joined = submit_request(engine, std::move(join));
    if (self == 5) {
      meet(4);  // it is said
      rank_5_has_joined.count_down();
      EXPECT_TRUE(engine.wait(hold).ok());
    }
    for (const auto& operation : {sum, joined}) {
      const Status status = engine.wait(operation);
      EXPECT_TRUE(status.ok()) << status.message();
    }
    EXPECT_EQ(values.back(), 10);
  });
}

// A set whose ranks are all there goes on while another set, and the world, wait for a rank that is late.
TEST_P(SetsTest, ThatAreApartDoNotWaitForEachOther) {
  World world(4, options(4));
  world.run([&](Engine& engine) {
    const std::uint32_t left = add_set(engine, {0, 1});
    const std::uint32_t right = add_set(engine, {2, 3});
    std::vector<double> late(1000, 1);
    Engine::OperationPtr pending;
    if (engine.rank() == 0) pending = submit_request(engine, sum_of(late, "late", left));
    std::vector<double> everybody(1000, 1);
    Engine::OperationPtr in_world;
    if (engine.rank() != 1) in_world = submit_request(engine, sum_of(everybody, "late"));
    if (engine.rank() >= 2) {
      for (int i = 0; i < 50; ++i) ASSERT_EQ(sum_in(engine, right, "x", 20'000), 7);
    }
    std::vector<double> token(1, 1);  // rank 1 hears from rank 3 that the others were not held up
    Request pass = request(Collective::kTransfer, "token", DataType::kFloat64, {1}, token.data());
    pass.signature.root = 3;
    if (engine.rank() == 1 || engine.rank() == 3) {
      pass.process_set = engine.pair_with(4 - engine.rank());
      ASSERT_TRUE(engine.wait(submit_request(engine, std::move(pass))).ok());
    }
    if (engine.rank() == 1) {
      pending = submit_request(engine, sum_of(late, "late", left));
      in_world = submit_request(engine, sum_of(everybody, "late"));
    }
    if (pending) {
      ASSERT_TRUE(engine.wait(pending).ok());
      EXPECT_EQ(late[0], 2);
    }
    ASSERT_TRUE(engine.wait(in_world).ok());
    EXPECT_EQ(everybody[0], 4);
  });
}

TEST_P(SetsTest, TakeRootsAndShowRanksAsInTheWorld) {
  World world(3, options(3));
  world.run([&](Engine& engine) {
    const std::uint32_t set = add_set(engine, {1, 2});
    if (engine.rank() == 0) return;
    std::vector<double> values(5, engine.rank());
    Request r = request(Collective::kBroadcast, "b", DataType::kFloat64, {5}, values.data());
    r.process_set = set;
    r.signature.root = 2;
    ASSERT_TRUE(engine.wait(submit_request(engine, r)).ok());
    EXPECT_EQ(values, std::vector<double>(5, 2));
    r.signature.root = 0;
    EXPECT_NE(engine.wait(submit_request(engine, r)).message().find("root_rank 0 is not in the process set"),
              std::string::npos);
    r.name = "c";
    r.signature.root = engine.rank();
    const Status differs = engine.wait(submit_request(engine, r));
    EXPECT_NE(differs.message().find("root_rank 1 on rank 1 but 2 on rank 2"), std::string::npos) << differs.message();
    EXPECT_EQ(sum_in(engine, set, "after"), 5);
  });
}

TEST_P(SetsTest, CannotBeUsedByOthersOrTwiceTheSameOrWhenTheyAreGone) {
  World world(2, options(2));
  world.run([&](Engine& engine) {
    const std::uint32_t set = add_set(engine, {1});
    const Status again = engine.wait(submit_request(engine, bare(Collective::kAddProcessSet, {1})));
    EXPECT_NE(again.message().find("exists already: set 1"), std::string::npos) << again.message();
    const Status world_again = engine.wait(submit_request(engine, bare(Collective::kAddProcessSet, {0, 1})));
    EXPECT_NE(world_again.message().find("exists already: set 0"), std::string::npos) << world_again.message();
    std::vector<double> values(1);
    if (engine.rank() == 0) {
      const Status outside = engine.wait(submit_request(engine, sum_of(values, "x", set)));
      EXPECT_EQ(outside.message(), "allreduce 'x': rank 0 is not in process set 1, whose ranks are [1].");
    }
    EXPECT_EQ(engine.wait(submit_request(engine, sum_of(values, "x", 9))).kind(), ErrorKind::kInvalidArgument);
    Request elsewhere = bare(Collective::kAddProcessSet, {0});
    elsewhere.process_set = set;
    if (engine.rank() == 1) {
      EXPECT_EQ(engine.wait(submit_request(engine, std::move(elsewhere))).message(),
                "add_process_set 'unnamed': all ranks do it, in process set 0 on lane 0, here it is set 1, lane 0.");
    }
    ASSERT_TRUE(remove_set(engine, set).ok());
    EXPECT_NE(engine.wait(submit_request(engine, sum_of(values, "x", set))).message().find("does not exist"),
              std::string::npos);
    EXPECT_NE(remove_set(engine, set).message().find("no process set 1"), std::string::npos);
    EXPECT_EQ(add_set(engine, {1}), 2U);
    EXPECT_EQ(sum_in(engine, 0, "after"), 3);
  });
}

TEST_P(SetsTest, ComeAndGoManyTimes) {
  World world(3, options(3));
  world.run([&](Engine& engine) {
    for (int round = 0; round < 60; ++round) {
      const std::vector<std::int64_t> ranks =
          round % 2 == 0 ? std::vector<std::int64_t>{0, 2} : std::vector<std::int64_t>{1, 2};
      const std::uint32_t set = add_set(engine, ranks);
      std::vector<double> late(1);
      Engine::OperationPtr pending;
      if (is_in(engine, ranks)) {
        ASSERT_EQ(sum_in(engine, set, "x"), expected_sum(ranks));
        if (engine.rank() == 2) pending = submit_request(engine, sum_of(late, "never", set));
      }
      ASSERT_TRUE(remove_set(engine, set).ok());
      if (!pending) continue;
      const Status status = engine.wait(pending);
      EXPECT_EQ(status.kind(), ErrorKind::kAborted);
      EXPECT_NE(status.message().find("removed"), std::string::npos) << status.message();
    }
    EXPECT_EQ(sum_in(engine, 0, "after"), 6);
  });
}

// Ranks 0 and 2, and then 2 and 3, make a set without the others, who may never hear of it.
TEST_P(SetsTest, AreFormedByTheirOwnRanks) {
  World world(4, options(4));
  world.run([&](Engine& engine) {
    for (std::uint32_t nth = 0; nth < 20; ++nth) {
      for (const std::vector<int>& ranks : {std::vector<int>{0, 2}, std::vector<int>{2, 3}, std::vector<int>{1}}) {
        if (std::find(ranks.begin(), ranks.end(), engine.rank()) == ranks.end()) continue;
        const auto set = engine.form_set(ranks, nth);
        ASSERT_TRUE(set.ok()) << set.status().message();
        ASSERT_EQ(engine.ranks_of(set.value()), ranks);
        ASSERT_EQ(sum_in(engine, set.value(), "x", 2000), expected_sum({ranks.begin(), ranks.end()}));
        const Status again = engine.form_set(ranks, nth).status();
        EXPECT_NE(again.message().find("the first rank has formed set number " + std::to_string(nth)),
                  std::string::npos);
      }
    }
    for (const std::vector<int>& wrong :
         {std::vector<int>{}, {2, 0}, {0, 0, 1, 2, 3}, {0, 1, 2, 3, 4}, {-1, 0, 1, 2, 3}}) {
      const Status refused = engine.form_set(wrong, 50).status();
      EXPECT_NE(refused.message().find("must be ascending ranks of the world with rank"), std::string::npos);
    }
    EXPECT_EQ(sum_in(engine, 0, "after"), 10);
  });
}

// What a rank has called before it leaves is carried out; what others call after it fails, and names it. It makes no
// difference who coordinates the set, or whether a rank has used it, or formed it by then.
TEST_P(SetsTest, OnceFormedEndWhenARankLeaves) {
  World world(4, options(4));
  const std::vector<int> ranks{0, 2, 3};
  world.run([&](Engine& engine) {
    for (std::uint32_t nth = 0; nth < 3; ++nth) {
      const int leaver = ranks[nth];
      if (engine.rank() == 1) continue;
      const std::uint32_t set = engine.form_set(ranks, nth).value();
      ASSERT_EQ(sum_in(engine, set, "x", 2000), 8);
      std::vector<double> values(2000, engine.rank() + 1);
      const auto pending = submit_request(engine, sum_of(values, "y", set));
      if (engine.rank() == leaver) {
        ASSERT_TRUE(remove_set(engine, set).ok());
      }
      ASSERT_TRUE(engine.wait(pending).ok());
      ASSERT_EQ(values.back(), 8);
      const Status late = engine.wait(submit_request(engine, sum_of(values, "z", set)));
      EXPECT_EQ(late.kind(), ErrorKind::kAborted);
      const std::string text = "rank " + std::to_string(leaver) + " has left this process set";
      EXPECT_NE(late.message().find(text), std::string::npos) << late.message();
      const Status again = remove_set(engine, set);
      EXPECT_TRUE(again.ok() || again.message().find(text) != std::string::npos) << again.message();
      EXPECT_FALSE(engine.form_set(ranks, nth).ok());
    }
    if (engine.rank() != 1) {
      const Status left = remove_set(engine, engine.form_set(ranks, 3).value());       // without a call
      ASSERT_TRUE(left.ok() || left.kind() == ErrorKind::kAborted) << left.message();  // another was first
    }
    EXPECT_EQ(remove_set(engine, formed_set(engine.rank(), 9)).kind(), ErrorKind::kInvalidArgument);
    EXPECT_EQ(sum_in(engine, 0, "after"), 10);
  });
}

// A message for a set that "was made" and is unknown is dropped, so that one formed meanwhile must not count.
TEST(ProcessSetsTest, WereMadeOnlyByTheLog) {
  ProcessSets sets(4);
  const std::uint32_t added = sets.add({0, 1});
  const std::uint32_t formed = formed_set(2, 0);
  ASSERT_EQ(sets.form(2, {2, 3}, 0).value(), formed);
  EXPECT_FALSE(sets.form(2, {2, 3}, 0).ok());
  EXPECT_TRUE(sets.was_made(added));
  EXPECT_FALSE(sets.was_made(added + 1));
  EXPECT_FALSE(sets.was_made(formed));
  sets.end(formed, 3);  // and then is late for ever
  EXPECT_TRUE(sets.was_made(formed));
  EXPECT_EQ(sets.ranks(formed), nullptr);
  EXPECT_FALSE(sets.form(2, {2, 3}, 0).ok());
  ASSERT_TRUE(sets.remove(added));
  EXPECT_TRUE(sets.was_made(added));
}

// Of the number after the last, the id would be that of another first rank's set.
TEST(ProcessSetsTest, AreFormedByNumbersThatIdsHaveRoomFor) {
  ProcessSets sets(4);
  EXPECT_TRUE(sets.form(1, {1, 2}, kMaxFormed - 1).ok());
  const auto refused = sets.form(1, {1, 2}, kMaxFormed);
  ASSERT_EQ(refused.status().kind(), ErrorKind::kInvalidArgument);
  EXPECT_NE(refused.status().message().find("a number below 32768"), std::string::npos);
  EXPECT_TRUE(sets.form(2, {2, 3}, 0).ok());
}

// Some ranks have formed it, and others know nothing of it: to all together it is not there.
TEST(ProcessSetsTest, ThatAreFormedAreNotFoundByTheirRanks) {
  ProcessSets sets(4);
  ASSERT_TRUE(sets.form(2, {2, 3}, 0).ok());
  EXPECT_FALSE(sets.find({2, 3}));
  const std::uint32_t added = sets.add({2, 3});
  EXPECT_EQ(sets.find({2, 3}), added);
}

TEST_P(SetsTest, PairsSendInBothDirectionsInAnyOrder) {
  World world(4, options(4));
  world.run([&](Engine& engine) {
    for (const std::size_t count : {0U, 1U, 100'000U}) {
      std::vector<std::vector<float>> sent(4, std::vector<float>(count, static_cast<float>(engine.rank())));
      std::vector<std::vector<float>> received(4, std::vector<float>(count, -1));
      std::vector<Engine::OperationPtr> operations;
      const auto transfer = [&](int from, int to, std::vector<float>& values) {
        Request r =
            request(Collective::kTransfer, "m", DataType::kFloat32, {static_cast<std::int64_t>(count)}, values.data());
        r.signature.root = from;
        r.process_set = engine.pair_with(engine.rank() == from ? to : from);
        if (engine.rank() == from) r.memory.front().output = nullptr;  // who sends gets nothing
        operations.push_back(submit_request(engine, std::move(r)));
      };
      for (int step = 1; step < 4; ++step) {
        const int peer = (engine.rank() + step) % 4;
        const auto at = static_cast<std::size_t>(peer);
        if (engine.rank() % 2 == 0) transfer(engine.rank(), peer, sent[at]);
        transfer(peer, engine.rank(), received[at]);
        if (engine.rank() % 2 != 0) transfer(engine.rank(), peer, sent[at]);
      }
      for (const auto& operation : operations) {
        const Status status = engine.wait(operation);
        ASSERT_TRUE(status.ok()) << status.message();
      }
      for (int peer = 0; peer < 4; ++peer) {
        if (peer == engine.rank()) continue;
        const auto& values = received[static_cast<std::size_t>(peer)];
        EXPECT_EQ(values, std::vector<float>(count, static_cast<float>(peer)));
      }
    }
    EXPECT_EQ(engine.pair_with(engine.rank()), 0U);
    EXPECT_EQ(engine.pair_with(4), 0U);
  });
}

// --- lanes

TEST_P(SetsTest, LanesDoNotWaitForEachOther) {
  WorldOptions with_lanes = options(2);
  with_lanes.config.num_lanes = 3;
  World world(2, with_lanes);
  world.run([&](Engine& engine) {
    std::vector<double> first(100'000, 1);
    std::vector<double> second(100'000, 1);
    // The same name on two lanes is two names, and one that waits does not hold up the other lane.
    Engine::OperationPtr late;
    if (engine.rank() == 0) late = submit_request(engine, sum_of(first, "x", 0, 1));
    for (int i = 0; i < 20; ++i) {
      std::fill(second.begin(), second.end(), 1);
      ASSERT_TRUE(engine.wait(submit_request(engine, sum_of(second, "x", 0, 2))).ok());
      ASSERT_EQ(second.back(), 2);
    }
    if (engine.rank() == 1) late = submit_request(engine, sum_of(first, "x", 0, 1));
    ASSERT_TRUE(engine.wait(late).ok());
    EXPECT_EQ(first.back(), 2);
  });
}

// --- joining

TEST_P(SetsTest, JoinedRanksCountForNothing) {
  constexpr int kSize = 4;
  World world(kSize, options(kSize));  // with lanes that come to be on the way
  world.run([&](Engine& engine) {
    for (int epoch = 0; epoch < 4; ++epoch) {
      const int n_batches = 2 + (engine.rank() + epoch) % kSize;  // of each rank, and of the last one 5
      for (int batch = 0; batch < n_batches; ++batch) {
        std::vector<int> working;
        for (int rank = 0; rank < kSize; ++rank) {
          if (batch < 2 + (rank + epoch) % kSize) working.push_back(rank);
        }
        const std::size_t count = batch % 2 == 0 ? 7 : 150'000;
        std::vector<double> values(count, -engine.rank());  // sums of -0 show whether a neutral element was added
        Request average =
            sum_of(values, "gradient" + std::to_string(count), 0, static_cast<std::uint32_t>(batch % 2 * (1 + epoch)));
        average.signature.op = ReduceOp::kAverage;
        const Status status = engine.wait(submit_request(engine, std::move(average)));
        ASSERT_TRUE(status.ok()) << status.message();
        double sum = 0;
        for (const int rank : working) sum -= rank;
        ASSERT_DOUBLE_EQ(values.back(), sum / static_cast<double>(working.size()));

        std::vector<std::int32_t> mine(static_cast<std::size_t>(engine.rank() + 1), engine.rank());
        auto gather = submit_request(
            engine, request(Collective::kAllgather, "g", DataType::kInt32, {engine.rank() + 1}, mine.data()));
        const Status gathered = engine.wait(gather);
        ASSERT_TRUE(gathered.ok()) << gathered.message();
        std::int64_t n_rows = 0;
        for (const int rank : working) n_rows += rank + 1;
        ASSERT_EQ(gather->outputs().front().shape, (Shape{n_rows}));
        ASSERT_EQ(reinterpret_cast<const std::int32_t*>(gather->outputs().front().data.get())[n_rows - 1],
                  working.back());
        std::vector<double> weights(3, engine.rank());
        Request share = request(Collective::kBroadcast, "b", DataType::kFloat64, {3}, weights.data());
        share.name += std::to_string(epoch);
        share.signature.root = (2 * kSize - 1 - epoch) % kSize;  // the last to join
        ASSERT_TRUE(engine.wait(submit_request(engine, std::move(share))).ok());
        ASSERT_EQ(weights.back(), (2 * kSize - 1 - epoch) % kSize);
      }
      const auto join = submit_request(engine, bare(Collective::kJoin));
      const Status joined = engine.wait(join);
      ASSERT_TRUE(joined.ok()) << joined.message();
      ASSERT_EQ(join->value(), (2 * kSize - 1 - epoch) % kSize);
    }
    ASSERT_EQ(sum_in(engine, 0, "after"), 10);
  });
}

TEST_P(SetsTest, EveryReductionIgnoresTheJoined) {
  World world(3, options(3));
  world.run([&](Engine& engine) {
    if (engine.rank() != 1) {
      for (const auto& [op, expected] : std::initializer_list<std::pair<ReduceOp, double>>{{ReduceOp::kSum, 4},
                                                                                           {ReduceOp::kMin, 1},
                                                                                           {ReduceOp::kMax, 3},
                                                                                           {ReduceOp::kProduct, 3},
                                                                                           {ReduceOp::kAverage, 2}}) {
        for (const std::size_t count : {3U, 100'000U}) {
          std::vector<double> values(count, engine.rank() + 1);
          Request r = sum_of(values, "x" + std::to_string(count) + std::string(to_string(op)));
          r.signature.op = op;
          ASSERT_TRUE(engine.wait(submit_request(engine, std::move(r))).ok());
          ASSERT_EQ(values.back(), expected) << to_string(op);
        }
      }
      // 0 is no neutral element of a sum of zeros with a sign.
      std::vector<double> zero(2, -0.0);
      ASSERT_TRUE(engine.wait(submit_request(engine, sum_of(zero, "zero"))).ok());
      EXPECT_TRUE(std::signbit(zero.front()));
      std::vector<double> values(2);
      Request b = request(Collective::kBroadcast, "b", DataType::kFloat64, {2}, values.data());
      b.signature.root = 1;
      const Status status = engine.wait(submit_request(engine, std::move(b)));
      EXPECT_EQ(status.kind(), ErrorKind::kInvalidArgument);
      EXPECT_NE(status.message().find("root, rank 1, has joined"), std::string::npos) << status.message();
    }
    const auto join = submit_request(engine, bare(Collective::kJoin));
    ASSERT_TRUE(engine.wait(join).ok());
    EXPECT_NE(join->value(), 1);
  });
}

TEST_P(SetsTest, AreJoinedOnceWhateverTheLane) {
  WorldOptions with_lanes = options(2);
  with_lanes.config.num_lanes = 2;
  World world(2, with_lanes);
  world.run([&](Engine& engine) {
    const auto join = [&](std::uint32_t lane) {
      Request r = bare(Collective::kJoin);
      r.lane = lane;
      return submit_request(engine, std::move(r));
    };
    std::vector<double> token(1, 1);  // rank 1 joins when rank 0 has tried twice
    Request pass = request(Collective::kTransfer, "token", DataType::kFloat64, {1}, token.data());
    pass.signature.root = 0;
    pass.process_set = engine.pair_with(1 - engine.rank());
    Engine::OperationPtr joined;
    if (engine.rank() == 0) {
      joined = join(1);
      EXPECT_EQ(engine.wait(join(0)).message(), "join() is pending already on rank 0; join once and wait for it.");
    }
    ASSERT_TRUE(engine.wait(submit_request(engine, std::move(pass))).ok());
    if (engine.rank() == 1) joined = join(0);
    ASSERT_TRUE(engine.wait(joined).ok());
    EXPECT_EQ(joined->value(), 1);
    for (const std::uint32_t lane : {0U, 1U}) {
      std::vector<double> values(3, 1);
      ASSERT_TRUE(engine.wait(submit_request(engine, sum_of(values, "after", 0, lane))).ok());
      EXPECT_EQ(values.back(), 2);
    }
  });
}

// It would not be waited for, and the coordinator would take it for a fault of the engine.
TEST_P(SetsTest, WhoHasJoinedMayNotCallBeforeAllHave) {
  World world(2, options(2));
  world.run([&](Engine& engine) {
    std::vector<double> token(1, 1);  // rank 1 joins when rank 0 has tried
    Request pass = request(Collective::kTransfer, "token", DataType::kFloat64, {1}, token.data());
    pass.signature.root = 0;
    pass.process_set = engine.pair_with(1 - engine.rank());
    std::vector<double> values(3, 1);
    Engine::OperationPtr joined;
    if (engine.rank() == 0) {
      joined = submit_request(engine, bare(Collective::kJoin));
      const Status refused = engine.wait(submit_request(engine, sum_of(values, "early", 0, 0)));
      EXPECT_EQ(refused.kind(), ErrorKind::kInvalidArgument);
      EXPECT_EQ(refused.message().find("'early' was called after join()"), 0U) << refused.message();
    }
    ASSERT_TRUE(engine.wait(submit_request(engine, std::move(pass))).ok());
    if (engine.rank() == 1) joined = submit_request(engine, bare(Collective::kJoin));
    ASSERT_TRUE(engine.wait(joined).ok());
    ASSERT_TRUE(engine.wait(submit_request(engine, sum_of(values, "early", 0, 0))).ok());
    EXPECT_EQ(values.back(), 2);
  });
}

// Horovod's rule, for every average that is asked to follow it, also when it could travel with one that is not.
TEST_P(SetsTest, AnAverageMayDivideByTheJoinedToo) {
  World world(3, options(3));
  world.run([&](Engine& engine) {
    const auto average = [](Request r, bool divides_by_all) {
      r.signature.op = ReduceOp::kAverage;
      r.signature.divides_by_all = divides_by_all;
      r.is_deferrable = true;
      return r;
    };
    if (engine.rank() != 1) {
      for (const std::size_t count : {3U, 100'000U}) {
        std::vector<double> by_all(count, 6);
        std::vector<double> by_contributors(count, 6);
        const auto all = submit_request(engine, average(sum_of(by_all, "all" + std::to_string(count)), true));
        const auto some =
            submit_request(engine, average(sum_of(by_contributors, "some" + std::to_string(count)), false));
        ASSERT_TRUE(engine.wait(all).ok() && engine.wait(some).ok());
        EXPECT_DOUBLE_EQ(by_all.back(), 4);
        EXPECT_DOUBLE_EQ(by_contributors.back(), 6);
      }
      std::vector<double> rows(3, 6);
      Request scatter = request(Collective::kReducescatter, "rows", DataType::kFloat64, {3}, rows.data());
      scatter.memory.front().output = nullptr;
      const auto scattered = submit_request(engine, average(std::move(scatter), true));
      ASSERT_TRUE(engine.wait(scattered).ok());
      EXPECT_DOUBLE_EQ(*reinterpret_cast<const double*>(scattered->outputs().front().data.get()), 4);
    }
    ASSERT_TRUE(engine.wait(submit_request(engine, bare(Collective::kJoin))).ok());
    std::vector<double> values(3, 1.0);
    ASSERT_TRUE(engine.wait(submit_request(engine, average(sum_of(values, "after"), true))).ok());
    EXPECT_DOUBLE_EQ(values.back(), 1);
  });
}

TEST_P(SetsTest, WhatNeedsAllFailsWhileARankHasJoined) {
  World world(3, options(3));
  world.run([&](Engine& engine) {
    const auto needing_all = [](Request r) {
      r.signature.needs_all = true;
      return r;
    };
    std::vector<double> values(3, 1.0);
    // What a rank submitted before it joined has all.
    const auto before = submit_request(engine, needing_all(sum_of(values, "before")));
    if (engine.rank() != 1) {
      ASSERT_TRUE(engine.wait(before).ok());
      for (const std::string name : {"needed", "again"}) {
        const Status status = engine.wait(submit_request(engine, needing_all(sum_of(values, name))));
        EXPECT_EQ(status.kind(), ErrorKind::kMismatch);
        EXPECT_NE(status.message().find("some have joined and take no part any more: rank 1."), std::string::npos)
            << status.message();
      }
      ASSERT_TRUE(engine.wait(submit_request(engine, sum_of(values, "not needed"))).ok());
    }
    ASSERT_TRUE(engine.wait(submit_request(engine, bare(Collective::kJoin))).ok());
    ASSERT_TRUE(engine.wait(before).ok());
    ASSERT_TRUE(engine.wait(submit_request(engine, needing_all(sum_of(values, "needed")))).ok());
  });
}

TEST_P(SetsTest, JoinsOfASetConcernThatSetOnly) {
  World world(3, options(3));
  world.run([&](Engine& engine) {
    const std::uint32_t set = add_set(engine, {0, 2});
    Engine::OperationPtr join;
    if (engine.rank() == 0) {
      Request r = bare(Collective::kJoin);
      r.process_set = set;
      join = submit_request(engine, std::move(r));
    }
    EXPECT_EQ(sum_in(engine, 0, "world"), 6);
    if (engine.rank() == 2) {
      EXPECT_EQ(sum_in(engine, set, "x"), 3);  // alone
      Request r = bare(Collective::kJoin);
      r.process_set = set;
      join = submit_request(engine, std::move(r));
    }
    if (!join) return;
    ASSERT_TRUE(engine.wait(join).ok());
    EXPECT_EQ(join->value(), 2);
    EXPECT_EQ(sum_in(engine, set, "x"), 4);
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, SetsTest, ::testing::ValuesIn(kLayouts),
                         [](const auto& layout) { return testing::to_string(layout.param); });

}  // namespace
}  // namespace ciranda
