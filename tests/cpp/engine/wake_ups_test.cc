// Who is woken for what, and what becomes of calls for which a thread waits late. One thread runs two ranks by hand, so
// that nothing depends on time.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/mesh_around.hpp"
#include "engine/progress_loop.hpp"
#include "engine/world.hpp"
#include "engine/world_parts.hpp"
#include "transport/loopback_fabric.hpp"

namespace ciranda {
namespace {

using testing::request;

constexpr std::int64_t kCount = 5;

// A mesh that counts how often it was asked to wake those who do not wait.
class CountingMesh final : public testing::MeshAround {
 public:
  using MeshAround::MeshAround;

  int n_urgent() const { return n_urgent_; }
  void notify(Urgency urgency) override {
    n_urgent_ += urgency == Urgency::kUrgent ? 1 : 0;
    MeshAround::notify(urgency);
  }

 private:
  int n_urgent_ = 0;
};

// What an engine is without its threads.
class Rank {
 public:
  Rank(LoopbackFabric& fabric, int rank, bool makes_direct_rounds = false)
      : mesh_(fabric.take_mesh(rank)), world_{mesh_, config(makes_direct_rounds), recorder_, all_backends()} {}

  CountingMesh& mesh() { return mesh_; }
  bool awaits_lazy_news() { return loop_.stop_looking(false) == Sleeper::kAwaits; }
  void wait_without_looking() { loop_.stop_looking(true); }
  void begin_to_wait(const Operation& operation) { loop_.expect_no_more(&operation); }
  std::uint64_t n_direct() const { return world_.n_direct; }

  std::shared_ptr<Operation> submit(const std::string& name, bool is_awaited) {
    auto r = request(Collective::kAllreduce, name, DataType::kInt32, {kCount}, values_.data());
    r.is_awaited = is_awaited;
    return submit(std::move(r));
  }
  std::shared_ptr<Operation> submit_deferrable(const std::string& name) {
    auto r = request(Collective::kAllreduce, name, DataType::kInt32, {kCount}, values_.data());
    r.is_deferrable = true;
    return submit(std::move(r));
  }
  // Runs until nothing moves. How often those were to be woken who do not wait.
  int run() {
    const int before = mesh_.n_urgent();
    while (loop_.run()) {
    }
    return mesh_.n_urgent() - before;
  }

 private:
  std::shared_ptr<Operation> submit(Request r) {
    PersistentOp* const op = world_.names.ops.take(0, r.name);
    EXPECT_NE(op, nullptr);
    auto operation = std::make_shared<Operation>();
    loop_.submissions().push({std::make_unique<Request>(std::move(r)), operation, op});
    return operation;
  }

  static Config config(bool makes_direct_rounds) {
    Config config;
    config.direct_rounds = makes_direct_rounds;
    return config;
  }

  CountingMesh mesh_;
  Recorder recorder_;
  WorldParts world_;
  ProgressLoop loop_{world_};
  std::vector<std::int32_t> values_ = std::vector<std::int32_t>(kCount, 1);
};

// Without direct rounds, which wake nobody.
class WakeUpsTest : public ::testing::TestWithParam<bool> {
 protected:
  WakeUpsTest() : fabric_(2, options()), coordinator_(fabric_, 0), other_(fabric_, 1) {}

  static LoopbackOptions options() {
    LoopbackOptions options;
    options.with_arena = GetParam();
    return options;
  }

  void complete(const Operation& operation) {
    for (int i = 0; i < 100 && !operation.is_done(); ++i) {
      coordinator_.run();
      other_.run();
    }
    ASSERT_TRUE(operation.is_done());
  }
  // Makes the name known.
  void call_once(const std::string& name) {
    const auto first = coordinator_.submit(name, true);
    complete(*other_.submit(name, true));
    complete(*first);
  }

  LoopbackFabric fabric_;
  Rank coordinator_;
  Rank other_;
};

TEST_P(WakeUpsTest, ANewNameIsUrgent) {
  other_.submit("x", true);
  EXPECT_GT(other_.run(), 0);
}

TEST_P(WakeUpsTest, AKnownNameIsUrgentWhereNobodyWaits) {
  call_once("x");
  other_.submit("x", false);
  EXPECT_GT(other_.run(), 0);
}

TEST_P(WakeUpsTest, AKnownNameIsNotUrgentUntilItsRankHasWaitedLong) {
  call_once("x");
  const auto operation = other_.submit("x", true);
  EXPECT_EQ(other_.run(), 0);
  EXPECT_FALSE(coordinator_.awaits_lazy_news());
  const int before = other_.mesh().n_urgent();
  other_.wait_without_looking();
  EXPECT_EQ(other_.mesh().n_urgent(), before + 1);
  other_.wait_without_looking();
  EXPECT_EQ(other_.mesh().n_urgent(), before + 1) << "there was no news since";
  const auto missing = coordinator_.submit("x", true);
  complete(*missing);
  complete(*operation);
}

TEST_P(WakeUpsTest, DataWakesOnlyThoseWhoExecute) {
  call_once("x");
  const auto operation = coordinator_.submit("x", true);
  coordinator_.run();
  EXPECT_TRUE(coordinator_.awaits_lazy_news()) << "the other's report is all that lacks";
  const auto awaited = other_.submit("x", true);
  other_.run();
  EXPECT_FALSE(other_.awaits_lazy_news());
  EXPECT_GT(coordinator_.run(), 0) << "the log is urgent";
  EXPECT_TRUE(coordinator_.awaits_lazy_news()) << "it executes";
  EXPECT_EQ(other_.run(), 0);
  complete(*operation);
  complete(*awaited);
  EXPECT_FALSE(coordinator_.awaits_lazy_news());
  EXPECT_FALSE(other_.awaits_lazy_news());
}

// A rank says that it waits once; that it has got what it waited for is seen by the round's end.
TEST_P(WakeUpsTest, TheCoordinatorAwaitsNothingForARankThatHasGotWhatItWaitedFor) {
  call_once("x");
  call_once("y");
  const auto awaited = other_.submit_deferrable("x");
  const auto beside = other_.submit_deferrable("y");
  other_.begin_to_wait(*awaited);
  coordinator_.run();
  EXPECT_TRUE(coordinator_.awaits_lazy_news());
  const auto missing = coordinator_.submit_deferrable("x");
  const auto last = coordinator_.submit_deferrable("y");
  for (const auto& each : {awaited, beside, missing, last}) complete(*each);
  EXPECT_FALSE(coordinator_.awaits_lazy_news());
}

// What the last rank says of it is deferred, too, and the others have gone back to their own work.
TEST_P(WakeUpsTest, TheCoordinatorHearsWhatLacksForACallThatAnotherWaitsFor) {
  LoopbackFabric fabric(3, options());
  Rank coordinator(fabric, 0);
  Rank waiting(fabric, 1);
  Rank last(fabric, 2);
  const auto deferred = coordinator.submit_deferrable("x");
  coordinator.run();
  EXPECT_FALSE(coordinator.awaits_lazy_news()) << "nobody waits";
  const auto awaited = waiting.submit("x", true);
  waiting.run();
  waiting.wait_without_looking();
  coordinator.run();
  EXPECT_TRUE(coordinator.awaits_lazy_news());
  const auto missing = last.submit_deferrable("x");
  last.run();
  for (int i = 0; i < 100 && !(deferred->is_done() && awaited->is_done() && missing->is_done()); ++i) {
    coordinator.run();
    waiting.run();
    last.run();
  }
  EXPECT_TRUE(awaited->is_done());
  EXPECT_FALSE(coordinator.awaits_lazy_news()) << "it is over";
}

// Its own call is what lacks, for which it looks at all reports.
TEST_P(WakeUpsTest, ReportsDoNotDisturbACoordinatorThatHasYetToCall) {
  LoopbackFabric fabric(3, options());
  Rank coordinator(fabric, 0);
  Rank waiting(fabric, 1);
  const auto awaited = waiting.submit("x", true);
  waiting.run();
  coordinator.run();
  EXPECT_FALSE(coordinator.awaits_lazy_news());
  const auto deferred = coordinator.submit_deferrable("x");
  coordinator.run();
  EXPECT_TRUE(coordinator.awaits_lazy_news());
}

// It has made its call, for which nobody waits there, so nobody looks for what it lacks.
TEST_P(WakeUpsTest, TheCoordinatorIsToldAtOnceOfACallWhoseThreadWaitsLater) {
  call_once("x");
  const auto deferred = coordinator_.submit_deferrable("x");
  coordinator_.run();
  EXPECT_FALSE(coordinator_.awaits_lazy_news());
  const auto asynchronous = other_.submit_deferrable("x");
  const int before = other_.mesh().n_urgent();
  other_.begin_to_wait(*asynchronous);
  other_.run();
  EXPECT_GT(other_.mesh().n_urgent(), before);
  complete(*asynchronous);
  complete(*deferred);
}

INSTANTIATE_TEST_SUITE_P(Arena, WakeUpsTest, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "Arena" : "Channels"; });

// Asynchronous calls whose threads wait before they are taken in.
class LateWaitsTest : public ::testing::Test {
 protected:
  LateWaitsTest() {
    for (const char* name : {"x", "y"}) each([name](Rank& rank) { return rank.submit(name, true); });
    finish();
  }

  template <typename Submit>
  void each(Submit submit) {
    for (Rank* rank : {&first_, &second_}) pending_.push_back(submit(*rank));
  }
  void finish() {
    for (int i = 0; i < 100; ++i) {
      first_.run();
      second_.run();
    }
    for (const auto& operation : pending_) EXPECT_TRUE(operation->is_done());
  }

  LoopbackFabric fabric_{2, LoopbackOptions{}};
  Rank first_{fabric_, 0, true};
  Rank second_{fabric_, 1, true};
  std::vector<std::shared_ptr<Operation>> pending_;
};

TEST_F(LateWaitsTest, MakeDirectRounds) {
  for (const bool is_deferrable : {false, true}) {
    each([is_deferrable](Rank& rank) {
      const auto x = is_deferrable ? rank.submit_deferrable("x") : rank.submit("x", false);
      rank.begin_to_wait(*x);
      return x;
    });
    finish();
  }
  EXPECT_EQ(first_.n_direct(), 2U);
  EXPECT_EQ(second_.n_direct(), 2U);
}

TEST_F(LateWaitsTest, MakeNoneOfSeveralCalls) {
  each([this](Rank& rank) {
    const auto x = rank.submit("x", false);
    pending_.push_back(rank.submit("y", false));
    rank.begin_to_wait(*x);
    return x;
  });
  finish();
  EXPECT_EQ(first_.n_direct(), 0U);
}

TEST_F(LateWaitsTest, MakeNoneOfAnotherCall) {
  each([](Rank& rank) {
    const auto x = rank.submit("x", false);
    rank.run();
    const auto y = rank.submit("y", false);
    rank.begin_to_wait(*x);
    return y;
  });
  finish();
  EXPECT_EQ(first_.n_direct(), 0U);
}

TEST_F(LateWaitsTest, MakeNoneWhereOthersAreHeldBack) {
  each([this](Rank& rank) {
    pending_.push_back(rank.submit_deferrable("x"));
    rank.run();
    const auto y = rank.submit_deferrable("y");
    rank.begin_to_wait(*y);
    return y;
  });
  finish();
  EXPECT_EQ(first_.n_direct(), 0U);
}

}  // namespace
}  // namespace ciranda
