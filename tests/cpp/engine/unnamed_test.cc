// Calls without a name: that ranks meet for the next of them, whatever it is, as they do for a name; and that those who
// make different calls hear of it as ever.
#include "agree/unnamed.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "call_of_one.hpp"
#include "engine/engine.hpp"
#include "engine/sets.hpp"
#include "engine/small_sums.hpp"
#include "engine/watchdog.hpp"
#include "engine/world.hpp"
#include "repetitions.hpp"
#include "text_matchers.hpp"
#include "transport/arena.hpp"

namespace ciranda {
namespace {

using testing::add_set;
using testing::bare;
using testing::meet;
using testing::patient;
using testing::Watchdog;
using testing::World;
using testing::WorldOptions;

Request unnamed_sum_of(std::vector<float>& values) {
  Request r = testing::sum_of("", values);
  r.is_cacheable = false;
  return r;
}

// One of the calls of a program, and the memory that it is about.
class Unnamed {
 public:
  static constexpr int kKinds = 9;
  static constexpr std::size_t kMostRanks = 7;

  Unnamed(int kind, int rank, int step, std::size_t count = 0) : kind_(kind), step_(step) {
    constexpr std::array<std::size_t, kKinds> kCounts{1, 100, 33, 3000, 2, 70000, 40000, 50, 20000};
    values_.assign(count != 0 ? count : kCounts[static_cast<std::size_t>(kind)], static_cast<float>(rank + step));
    shape_ = static_cast<std::int64_t>(values_.size());
    call_.tensor.shape = {&shape_, 1};
    call_.tensor.memory = {reinterpret_cast<const std::byte*>(values_.data()),
                           reinterpret_cast<std::byte*>(values_.data())};
    if (is_broadcast()) {
      call_.collective = Collective::kBroadcast;
      call_.root = 1;
    }
    if (kind_ == 4) call_.op = ReduceOp::kMax;
    if (is_allgather()) {
      call_.collective = Collective::kAllgather;
      all_.assign(kMostRanks * values_.size(), -1);
      call_.tensor.memory.output = reinterpret_cast<std::byte*>(all_.data());
    }
  }
  Unnamed(const Unnamed&) = delete;
  Unnamed& operator=(const Unnamed&) = delete;

  // As a blocking call does.
  Status perform(Engine& engine) {
    const auto repeated = repeat(engine, call_);
    if (repeated && *repeated == nullptr) return {};
    return engine.wait(repeated ? *repeated : submit_request(engine, make_request(call_)));
  }
  Engine::OperationPtr submit(Engine& engine) {
    Request request = make_request(call_);
    request.is_awaited = false;
    return submit_request(engine, std::move(request));
  }

  void expect_result(int n_ranks) const {
    for (int rank = 0; is_allgather() && rank < n_ranks; ++rank) {
      const auto first = all_.begin() + rank * shape_;
      EXPECT_EQ(std::vector<float>(first, first + shape_),
                std::vector<float>(values_.size(), static_cast<float>(rank + step_)))
          << "kind " << kind_ << ", step " << step_;
    }
    if (is_allgather()) return;
    float expected = static_cast<float>(n_ranks * step_ + n_ranks * (n_ranks - 1) / 2);
    if (is_broadcast()) expected = static_cast<float>(step_ + 1);
    if (kind_ == 4) expected = static_cast<float>(step_ + n_ranks - 1);
    EXPECT_EQ(values_, std::vector<float>(values_.size(), expected)) << "kind " << kind_ << ", step " << step_;
  }

 private:
  bool is_broadcast() const { return kind_ == 2 || kind_ == 6; }
  bool is_allgather() const { return kind_ >= 7; }

  int kind_;
  int step_;
  std::vector<float> values_;
  std::vector<float> all_;  // what is gathered
  std::int64_t shape_ = 0;
  testing::CallOfOne call_;
};

TEST(UnnamedCalls, AreMetForWhateverTheirOrder) {
  for (const int n_ranks : {2, 3, 4, 7}) {
    const Watchdog watchdog("unnamed calls");
    World world(n_ranks, patient());
    world.run([&](Engine& engine) {
      const auto perform = [&](int step) {
        Unnamed call(std::array{0, 1, 2, 7}[static_cast<std::size_t>(step % 7 % 4)], engine.rank(), step);
        EXPECT_TRUE(call.perform(engine).ok());
        call.expect_result(n_ranks);
      };
      EXPECT_EQ(meet(engine, 100, perform), 100U);
    });
  }
}

// Those of two ranks go by buffers that they exchange.
TEST(UnnamedCalls, OfManyBytesAreMetByTwo) {
  const Watchdog watchdog("large unnamed calls");
  World world(2, patient());
  world.run([](Engine& engine) {
    const auto perform = [&](int step) {
      Unnamed call(std::array{3, 5, 0, 6, 8}[static_cast<std::size_t>(step % 5)], engine.rank(), step);
      EXPECT_TRUE(call.perform(engine).ok());
      call.expect_result(2);
    };
    EXPECT_EQ(meet(engine, 100, perform), 100U);
  });
}

TEST(UnnamedCalls, OfSeveralTensorsAreMet) {
  for (const int n_ranks : {2, 3}) {
    const Watchdog watchdog("unnamed groups");
    World world(n_ranks, patient());
    world.run([n_ranks](Engine& engine) {
      const auto perform = [&](int step) {
        const auto of_rank = static_cast<float>(engine.rank() + step);
        const auto sum = static_cast<float>(n_ranks * step + n_ranks * (n_ranks - 1) / 2);
        std::vector<float> first(step % 2 == 0 ? 100 : 33, of_rank);
        std::vector<float> second(200, 2 * of_rank);
        Request group = unnamed_sum_of(first);
        group.signature.tensors.push_back({DataType::kFloat32, {200}});
        auto* const memory = reinterpret_cast<std::byte*>(second.data());
        group.memory.push_back({memory, memory});
        EXPECT_TRUE(engine.wait(submit_request(engine, std::move(group))).ok());
        EXPECT_EQ(first, std::vector<float>(first.size(), sum)) << step;
        EXPECT_EQ(second, std::vector<float>(second.size(), 2 * sum)) << step;
      };
      EXPECT_EQ(meet(engine, 100, perform), 100U);
    });
  }
}

// The ranks' numbers of rows differ now and then: such a call goes by the log, and is no mistake.
TEST(UnnamedCalls, ThatGatherAsManyRowsOfEachAreMet) {
  for (const int n_ranks : {2, 3}) {
    const Watchdog watchdog("unnamed allgathers");
    World world(n_ranks, patient());
    world.run([n_ranks](Engine& engine) {
      const auto rows_of = [](int rank, int step) {
        constexpr std::array<std::size_t, 3> kRows{1, 70, 30000};
        return kRows[static_cast<std::size_t>(step % 5 == 4 ? (step / 5 + rank) % 3 : step % 2)];
      };
      const auto perform = [&](int step) {
        std::vector<float> rows(rows_of(engine.rank(), step), static_cast<float>(engine.rank() + step));
        Request r = unnamed_sum_of(rows);
        r.signature.collective = Collective::kAllgather;
        r.memory.front().output = nullptr;
        const Engine::OperationPtr operation = submit_request(engine, std::move(r));
        const Status status = engine.wait(operation);
        ASSERT_TRUE(status.ok()) << status.message();
        std::vector<float> expected;
        for (int rank = 0; rank < n_ranks; ++rank) {
          expected.insert(expected.end(), rows_of(rank, step), static_cast<float>(rank + step));
        }
        const auto& outputs = operation->outputs();
        ASSERT_EQ(outputs.size(), 1U);
        const auto* const first = reinterpret_cast<const float*>(outputs.front().data.get());
        EXPECT_EQ(std::vector<float>(first, first + expected.size()), expected) << step;
      };
      EXPECT_EQ(meet(engine, 100, perform), 100U);
    });
  }
}

// Rows of no bytes are as many bytes of each rank, but not as many rows.
TEST(UnnamedCalls, ThatGatherRowsOfNoBytesAreTold) {
  const Watchdog watchdog("unnamed allgathers of no bytes");
  World world(2, patient());
  world.run([](Engine& engine) {
    for (int step = 0; step < 60; ++step) {
      // A rank that learnt its own number of rows would know two, and the other two others.
      const std::array<std::int64_t, 2> rows{step < 2 ? 4 : 7, step < 1 ? 5 : 6};
      Request r = bare(Collective::kAllgather);
      r.signature.tensors.push_back({DataType::kFloat32, {rows[static_cast<std::size_t>(engine.rank())], 0}});
      float nothing = 0;
      r.memory.push_back({reinterpret_cast<const std::byte*>(&nothing), nullptr});
      r.is_awaited = true;
      const Engine::OperationPtr operation = submit_request(engine, std::move(r));
      ASSERT_TRUE(engine.wait(operation).ok());
      ASSERT_EQ(operation->outputs().at(0).shape, (Shape{rows[0] + rows[1], 0})) << step;
    }
  });
}

// More signatures than are kept: the latest are known, and are told apart.
TEST(UnnamedCalls, OfManySignaturesAreMetByTheLatest) {
  const Watchdog watchdog("unnamed calls of many signatures");
  World world(2, patient());
  world.run([](Engine& engine) {
    const auto call = [&engine](std::size_t count, int step) {
      Unnamed one(count % 3 == 0 ? 7 : 0, engine.rank(), step, count);
      const Status status = one.perform(engine);
      if (status.ok()) one.expect_result(2);
      return status;
    };
    constexpr std::size_t kSignatures = 3 * UnnamedSignatures::kMost / 2;
    for (std::size_t count = 1; count <= kSignatures; ++count) EXPECT_TRUE(call(count, 1).ok());
    const auto perform = [&](int step) {
      const std::size_t n_back = static_cast<std::size_t>(step) % UnnamedSignatures::kMost;
      EXPECT_TRUE(call(kSignatures - n_back, step).ok());
    };
    // Those that were made known after the first kMost, by themselves: else half of the calls would be met anyway.
    const auto perform_later = [&](int step) { perform(step % static_cast<int>(UnnamedSignatures::kMost / 2)); };
    EXPECT_EQ(meet(engine, 200, perform_later), 200U);
    EXPECT_EQ(meet(engine, 200, perform), 200U);
    for (int step = 0; step < 10; ++step) {
      const std::size_t n_back = engine.rank() == 0 ? 0 : UnnamedSignatures::kMost / 2;
      EXPECT_EQ(call(kSignatures - n_back, step).kind(), ErrorKind::kMismatch);
      perform(step);
    }
  });
}

// Calls of the world and of a set are in an order each, but in none together.
TEST(UnnamedCalls, OfAProcessSetAreMetWhateverItsRanksCallInTheWorld) {
  const Watchdog watchdog("unnamed calls of a set");
  World world(3, patient());
  world.run([](Engine& engine) {
    const std::uint32_t set = add_set(engine, {0, 2});
    std::uint32_t lane = 0;
    const auto submit = [&](std::uint32_t to, std::vector<float>& values) {
      Request r = unnamed_sum_of(values);
      r.is_awaited = to == set;
      r.process_set = to;
      r.lane = to == set ? lane : 0;
      return submit_request(engine, std::move(r));
    };
    const auto perform = [&](int step) {
      const auto of_rank = static_cast<float>(engine.rank() + step);
      lane = step % 8 == 7 ? 1 : 0;
      std::vector<float> of_world(10, of_rank);
      std::vector<float> of_set(step % 2 == 0 ? 3 : 5000, of_rank);
      Engine::OperationPtr in_world;
      if (engine.rank() == 0) in_world = submit(0, of_world);
      EXPECT_TRUE(engine.wait(submit(set, of_set)).ok());
      if (engine.rank() == 2) in_world = submit(0, of_world);
      EXPECT_TRUE(engine.wait(in_world).ok());
      EXPECT_EQ(of_world, std::vector<float>(of_world.size(), static_cast<float>(3 * step + 3)));
      EXPECT_EQ(of_set, std::vector<float>(of_set.size(), static_cast<float>(2 * step + 2)));
    };
    const std::uint64_t met_before = engine.n_direct();
    for (int step = 0; step < 300; ++step) {
      if (engine.rank() == 1) {
        std::vector<float> values(10, static_cast<float>(1 + step));
        EXPECT_TRUE(engine.wait(submit(0, values)).ok());
      } else {
        perform(step);
      }
    }
    EXPECT_TRUE(engine.rank() == 1 || engine.n_direct() > met_before);
  });
}

// More often than there are buffers, which are all there afterwards.
TEST(UnnamedCalls, OfManyBytesThatDifferKeepTheirBuffers) {
  const Watchdog watchdog("large unnamed calls that differ");
  World world(2, patient());
  world.run([](Engine& engine) {
    const auto perform = [&](int step) {
      Unnamed call(5 + step % 2, engine.rank(), step);
      EXPECT_TRUE(call.perform(engine).ok());
      call.expect_result(2);
    };
    for (int step = 0; step < 4; ++step) perform(step);
    for (int step = 0; step < 20 * static_cast<int>(SharedArena::kLargeBuffers); ++step) {
      Unnamed call(5 + (step + engine.rank()) % 2, engine.rank(), step);
      EXPECT_EQ(call.perform(engine).kind(), ErrorKind::kMismatch);
      perform(step);  // by the log, which opens such calls to rounds again
    }
    EXPECT_EQ(meet(engine, 100, perform), 100U);
  });
}

TEST(UnnamedCalls, ThatDifferFailOnAllRanksAndTheNextGoOn) {
  const Watchdog watchdog("differing unnamed calls");
  World world(3, patient());
  world.run([](Engine& engine) {
    for (int step = 0; step < 60; ++step) {
      const bool differs = step % 10 == 9;
      const bool is_other = differs ? engine.rank() == step / 10 % 3 : step % 2 == 1;  // both are known by then
      Unnamed call(is_other ? 1 : 0, engine.rank(), step);
      const Status status = call.perform(engine);
      ASSERT_EQ(status.ok(), !differs) << status.message();
      if (!differs) {
        call.expect_result(3);
        continue;
      }
      EXPECT_EQ(status.kind(), ErrorKind::kMismatch);
      EXPECT_TRUE(contains(status.message(), "Ranks disagree about 'noname." + std::to_string(step) + "'"));
    }
    EXPECT_GT(engine.n_direct(), 0U);
  });
}

// Ranks wait at once or later, come late, and call what has a name in between, each as it likes.
TEST(UnnamedCalls, AreMatchedInTheirOrderHoweverEachRankMakesThem) {
  constexpr int kSteps = static_cast<int>(repetitions(400));
  for (const int n_ranks : {2, 3, 4}) {
    const Watchdog watchdog("random unnamed calls");
    WorldOptions options;
    options.config.spin_microseconds = 50;
    World world(n_ranks, options);
    world.run([n_ranks](Engine& engine) {
      std::mt19937 program(7);
      std::mt19937 own(static_cast<unsigned>(engine.rank()) + 1);
      std::vector<std::unique_ptr<Unnamed>> calls;
      std::vector<Engine::OperationPtr> pending;
      const auto finish = [&] {
        for (const auto& operation : pending) ASSERT_TRUE(engine.wait(operation).ok());
        for (const auto& call : calls) call->expect_result(n_ranks);
        pending.clear();
        calls.clear();
      };
      for (int step = 0; step < kSteps; ++step) {
        const int kind = static_cast<int>(program() % Unnamed::kKinds);
        const bool is_quiet = program() % 64 < 32;
        calls.push_back(std::make_unique<Unnamed>(kind, engine.rank(), step));
        if (own() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
        if (!is_quiet && own() % 4 == 0) {
          pending.push_back(calls.back()->submit(engine));
        } else {
          ASSERT_TRUE(calls.back()->perform(engine).ok());
        }
        if (own() % 8 == 0) finish();
      }
      finish();
    });
  }
}

TEST(UnnamedCalls, OfSeveralThreadsAreEachCarriedOutOnce) {
  const Watchdog watchdog("threads");
  World world(2);
  world.run([](Engine& engine) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&engine] {
        for (int step = 0; step < 100; ++step) {
          Unnamed call(0, engine.rank(), 5);
          ASSERT_TRUE(call.perform(engine).ok());
          call.expect_result(2);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

TEST(UnnamedCalls, GoOnWithoutWhoHasJoinedAndAreCountedAnewWhenAllHave) {
  const Watchdog watchdog("join");
  World world(3);
  world.run([](Engine& engine) {
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (int step = 0; step < 20; ++step) {
        Unnamed call(0, engine.rank(), step);
        ASSERT_TRUE(call.perform(engine).ok());
        call.expect_result(3);
      }
      if (engine.rank() != 2) {
        for (int step = 0; step < 5 + epoch; ++step) {
          Unnamed call(0, engine.rank(), step);
          ASSERT_TRUE(call.perform(engine).ok());
          call.expect_result(2);
        }
      }
      ASSERT_TRUE(engine.wait(submit_request(engine, bare(Collective::kJoin))).ok());
    }
  });
}

}  // namespace
}  // namespace ciranda
