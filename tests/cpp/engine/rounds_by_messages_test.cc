// Small calls for which ranks that share no memory send each other their inputs (agree/sent_inputs.hpp): that
// they do, that the results are right when some do and some do not, and that ranks agree when one is late, leaves, or
// calls twice.
#include <gtest/gtest.h>

#include <latch>
#include <string>
#include <vector>

#include "base/agreement_limits.hpp"
#include "engine/engine.hpp"
#include "engine/one_is_late.hpp"
#include "engine/small_sums.hpp"
#include "engine/watchdog.hpp"
#include "engine/world.hpp"
#include "text_matchers.hpp"

namespace ciranda {
namespace {

using testing::end_stalls_soon;
using testing::expected;
using testing::filled;
using testing::Layout;
using testing::OneIsLate;
using testing::options_for;
using testing::sum;
using testing::sum_of;
using testing::Watchdog;
using testing::World;
using testing::WorldOptions;

constexpr std::size_t kMany = AgreementLimits{}.message_bytes / sizeof(float);  // of all ranks

WorldOptions apart() { return options_for(Layout::kChannels, 0); }

TEST(RoundsByMessages, MayBeOf64KiBOfTwoRanks) {
  const Watchdog watchdog("large inputs of two");
  World world(2, apart());
  world.run([](Engine& engine) {
    for (int step = 0; step < 20; ++step) {
      const bool is_awaited = step != 10 || engine.rank() == 0;
      std::vector<float> values = filled(kMany / 2, engine.rank(), step);
      ASSERT_TRUE(sum(engine, "x", values, is_awaited).ok());
      ASSERT_EQ(values, std::vector<float>(kMany / 2, expected(2, step)));
    }
    EXPECT_EQ(engine.n_direct(), 18U);
  });
}

// Also where some ranks share memory with some.
TEST(RoundsByMessages, OfRanksOfTwoHosts) {
  const Watchdog watchdog("two hosts");
  World world(4, options_for(Layout::kTwoHosts, 4));
  world.run([](Engine& engine) {
    for (int step = 0; step < 20; ++step) {
      std::vector<float> values = filled(5, engine.rank(), step);
      ASSERT_TRUE(sum(engine, "x", values).ok());
      ASSERT_EQ(values, std::vector<float>(5, expected(4, step)));
    }
    EXPECT_EQ(engine.n_direct(), 19U);
  });
}

void expect_none(int n_ranks, const WorldOptions& options, std::size_t count) {
  const Watchdog watchdog("no direct rounds");
  World world(n_ranks, options);
  world.run([&](Engine& engine) {
    for (int step = 0; step < 4; ++step) {
      std::vector<float> values = filled(count, engine.rank(), step);
      ASSERT_TRUE(sum(engine, "x", values).ok());
      ASSERT_EQ(values, std::vector<float>(count, expected(n_ranks, step)));
    }
    EXPECT_EQ(engine.n_direct(), 0U);
  });
}

TEST(RoundsByMessages, AreNotForWhatIsLargeOrEmptyOrForManyRanks) {
  expect_none(2, apart(), kMany / 2 + 1);
  expect_none(4, apart(), kMany / 4 + 1);
  expect_none(2, apart(), 0);
  expect_none(9, apart(), 3);
  WorldOptions none = apart();
  none.config.direct_bytes = 0;
  expect_none(2, none, 1);
}

// Otherwise half as many bytes travel.
TEST(RoundsByMessages, AreSmallerWhereDataIsRounded) {
  WorldOptions rounded = apart();
  rounded.config.wire_dtype = "bfloat16";
  World world(2, rounded);
  EXPECT_EQ(world.engine(0).agreement(Collective::kAllreduce, kMany), "a direct round by messages");
  EXPECT_EQ(world.engine(0).agreement(Collective::kAllreduce, kMany + 1), "the log");
}

TEST(RoundsByMessages, WaitForALateRank) {
  const Watchdog watchdog("a late rank");
  World world(3, apart());
  OneIsLate late(3);
  world.run([&late](Engine& engine) {
    for (int step = 0; step < 12; ++step) {
      std::vector<float> values = filled(9, engine.rank(), step);
      const bool is_late = engine.rank() == step % 3;
      if (is_late) late.wait_for_others(step);
      const auto operation = submit_request(engine, sum_of("x", values));
      ASSERT_TRUE((is_late ? engine.wait(operation) : late.wait(engine, operation)).ok());
      ASSERT_EQ(values, std::vector<float>(9, expected(3, step)));
    }
    EXPECT_EQ(engine.n_direct(), 11U);
  });
}

// The late rank hears the same, and the next calls are paired.
TEST(RoundsByMessages, ForWhichARankNeverComesAreCancelled) {
  for (int missing = 0; missing < 3; ++missing) {
    const Watchdog watchdog("missing rank " + std::to_string(missing));
    WorldOptions options = apart();
    end_stalls_soon(options.config);
    World world(3, options);
    ::testing::internal::CaptureStderr();
    std::latch others_have_failed(2);
    world.run([&](Engine& engine) {
      std::vector<float> values = filled(3, engine.rank(), 0);
      for (int step = 0; step < 3; ++step) ASSERT_TRUE(sum(engine, "x", values).ok());
      EXPECT_EQ(engine.n_direct(), 2U);
      if (engine.rank() == missing) others_have_failed.wait();
      const Status status = sum(engine, "x", values);
      EXPECT_EQ(status.kind(), ErrorKind::kTimeout);
      EXPECT_TRUE(contains(status.message(), "'x' has waited")) << status.message();
      EXPECT_TRUE(contains(status.message(), "rank " + std::to_string(missing))) << status.message();
      if (engine.rank() != missing) others_have_failed.count_down();
      for (int step = 0; step < 3; ++step) {
        values = filled(3, engine.rank(), step);
        const Status after = sum(engine, "x", values);
        ASSERT_TRUE(after.ok()) << after.message();
        EXPECT_EQ(values, std::vector<float>(3, expected(3, step)));
      }
      EXPECT_EQ(engine.n_direct(), 4U);
    });
    (void)::testing::internal::GetCapturedStderr();
  }
}

// It is told once the round is over: by then the others have carried out the first call, and it fails their next.
TEST(RoundsByMessages, ADuplicateOfOneThatIsUnderWayFailsTheNextCallOfTheOthers) {
  for (int twice = 0; twice < 3; ++twice) {
    const Watchdog watchdog("a duplicate on rank " + std::to_string(twice));
    World world(3, apart());
    std::latch has_called_twice(1);
    world.run([&](Engine& engine) {
      std::vector<float> values = filled(4, engine.rank(), 0);
      ASSERT_TRUE(sum(engine, "x", values).ok());
      values = filled(4, engine.rank(), 1);
      if (engine.rank() == twice) {
        const Engine::OperationPtr first = submit_request(engine, sum_of("x", values));
        std::vector<float> other = filled(4, engine.rank(), 2);
        EXPECT_EQ(submit_request(engine, sum_of("x", other))->status().kind(), ErrorKind::kInvalidArgument);
        has_called_twice.count_down();
        EXPECT_TRUE(engine.wait(first).ok()) << first->status().message();
      } else {
        has_called_twice.wait();
        EXPECT_TRUE(sum(engine, "x", values).ok());
      }
      EXPECT_EQ(values, std::vector<float>(4, expected(3, 1)));
      EXPECT_EQ(engine.n_direct(), 1U);
      if (engine.rank() != twice) {
        const Status status = sum(engine, "x", values);
        EXPECT_EQ(status.kind(), ErrorKind::kInvalidArgument);
        EXPECT_TRUE(contains(status.message(), "rank " + std::to_string(twice))) << status.message();
      }
      // A call that comes before this rank has heard of the failure is taken for another one.
      while (!sum(engine, "x", values).ok()) {
      }
    });
  }
}

// The coordinator decides who sends inputs, whatever a rank's own settings say; so whoever may have sent some says when
// it will do so no more, or others wait for it for ever.
TEST(RoundsByMessages, EndWhereRanksDifferInTheirSettings) {
  for (const int prescribes : {1, 2}) {
    const Watchdog watchdog("rank " + std::to_string(prescribes) + " differs");
    World world(3, [&](int rank) {
      WorldOptions options = apart();
      if (rank == prescribes) options.config.algorithm = "one-shot";  // what the others choose too
      return options;
    });
    world.run([&](Engine& engine) {
      for (int step = 0; step < 3; ++step) {
        std::vector<float> values = filled(4, engine.rank(), step);
        ASSERT_TRUE(sum(engine, "x", values).ok());
        ASSERT_EQ(values, std::vector<float>(4, expected(3, step)));
      }
      EXPECT_EQ(engine.n_direct(), 2U);
      if (engine.rank() == prescribes) return;  // stays, and calls nothing
      std::vector<float> values = filled(4, engine.rank(), 0);
      const Engine::OperationPtr last = submit_request(engine, sum_of("x", values));
      if (engine.rank() == 0) engine.shutdown();  // others have its input
      EXPECT_EQ(engine.wait(last).kind(), ErrorKind::kAborted);
    });
  }
}

}  // namespace
}  // namespace ciranda
