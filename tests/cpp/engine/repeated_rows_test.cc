// Engine::run() of allgathers, reducescatters and alltoalls: into memory that the caller gives, and into memory of
// the engine's; beside calls that are submitted, and where ranks contribute other rows than before.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "call_of_one.hpp"
#include "engine/coming.hpp"
#include "engine/engine.hpp"
#include "engine/guarded.hpp"
#include "engine/sets.hpp"
#include "engine/watchdog.hpp"
#include "engine/world.hpp"
#include "text_matchers.hpp"

namespace ciranda {
namespace {

using testing::add_set;
using testing::agree;
using testing::bare;
using testing::Guarded;
using testing::LastToCome;
using testing::patient;
using testing::Watchdog;
using testing::World;
using testing::WorldOptions;
using Ints = std::vector<std::int32_t>;

constexpr std::array kRowCollectives{Collective::kAllgather, Collective::kReducescatter, Collective::kAlltoall};
constexpr std::int64_t kWidth = 3;

std::int32_t value_at(int rank, int step, std::size_t place) {
  return static_cast<std::int32_t>(1'000'000 * step + 10'000 * rank) + static_cast<std::int32_t>(place);
}

// What a rank contributes to a step.
Ints values_of(int rank, int step, std::int64_t n_rows) {
  Ints values(static_cast<std::size_t>(n_rows * kWidth));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value_at(rank, step, i);
  return values;
}

// What it gets, where all contribute as many rows.
Ints expected(Collective collective, int rank, int n_ranks, int step, std::int64_t n_rows) {
  Ints result;
  if (collective == Collective::kReducescatter) {
    const std::vector<std::int64_t> rows = even_splits(n_rows, n_ranks);
    const auto before = std::accumulate(rows.begin(), rows.begin() + rank, std::int64_t{0}) * kWidth;
    for (std::int64_t i = before; i < before + rows[static_cast<std::size_t>(rank)] * kWidth; ++i) {
      std::int32_t sum = 0;
      for (int other = 0; other < n_ranks; ++other) sum += value_at(other, step, static_cast<std::size_t>(i));
      result.push_back(sum);
    }
    return result;
  }
  for (int other = 0; other < n_ranks; ++other) {
    const Ints all = values_of(other, step, n_rows);
    const auto part = static_cast<std::ptrdiff_t>(n_rows / n_ranks * kWidth);
    const auto begin = collective == Collective::kAlltoall ? all.begin() + rank * part : all.begin();
    result.insert(result.end(), begin, collective == Collective::kAlltoall ? begin + part : all.end());
  }
  return result;
}

std::span<const std::byte> bytes_of(const Ints& values) { return std::as_bytes(std::span(values)); }

// A call, what it contributes, and memory for its result.
struct RowsCall {
  RowsCall(Collective collective, std::string called, int rank, int n_ranks, int step, std::int64_t n_rows)
      : name(std::move(called)),
        values(values_of(rank, step, n_rows)),
        wanted(expected(collective, rank, n_ranks, step, n_rows)),
        shape{n_rows, kWidth},
        result(bytes_of(wanted).size(), Guarded::kMisaligned),
        call({.collective = collective}, name, DataType::kInt32) {
    call.tensor.shape = shape;
    call.tensor.memory = {reinterpret_cast<const std::byte*>(values.data()), result.data()};
  }
  RowsCall(const RowsCall&) = delete;
  RowsCall& operator=(const RowsCall&) = delete;

  // Leaves the result to the engine.
  void allocate() {
    call.tensor.memory.output = nullptr;
    call.has_room_for_all = false;
  }

  // In the memory that was given.
  void expect_right() const {
    EXPECT_TRUE(result.holds(bytes_of(wanted)));
    EXPECT_TRUE(result.is_intact());
  }

  std::string name;
  Ints values;
  Ints wanted;
  std::array<std::int64_t, 2> shape;
  Guarded result;
  testing::CallOfOne call;
};

Ints output_of(const Operation& operation) {
  const OutputBuffer& buffer = operation.outputs().at(0);
  const auto* values = reinterpret_cast<const std::int32_t*>(buffer.data.get());
  return {values, values + buffer.n_bytes / sizeof(std::int32_t)};
}

// A blocking call. Null: it was done without an operation.
Engine::OperationPtr perform_rows(Engine& engine, const Call& call) {
  Engine::OperationPtr operation = engine.run(call);
  if (operation != nullptr) static_cast<void>(engine.wait(operation));
  return operation;
}

Status status_of(const Engine::OperationPtr& operation) {
  return operation == nullptr ? Status::ok_status() : operation->status();
}

// By the nth of the ranks of a process set. The last finds the others there.
void expect_no_operation(Engine& engine, LastToCome& last, Collective collective, int nth, int n_ranks,
                         std::uint32_t process_set = 0) {
  // Of a reducescatter the first ranks get more.
  const std::int64_t n_rows = collective == Collective::kReducescatter ? 2 * n_ranks + 1 : 2 * n_ranks;
  RowsCall first(collective, "x", nth, n_ranks, 0, n_rows);
  first.call.process_set = process_set;
  agree(engine, first.call);
  first.expect_right();
  for (int step = 1; step <= LastToCome::kMostRounds && !last.was_at_once(); ++step) {
    RowsCall x(collective, "x", nth, n_ranks, step, n_rows);
    x.call.process_set = process_set;
    last.perform(engine, x.call);
    x.expect_right();
    EXPECT_EQ(x.values, values_of(nth, step, n_rows));
  }
  EXPECT_TRUE(last.was_at_once());
  EXPECT_GE(engine.n_direct(), 1U);
}

TEST(RepeatedRows, NeedNoOperationWhereThereIsMemoryAndAllHaveCome) {
  for (const Collective collective : kRowCollectives) {
    for (const int n_ranks : {2, 3, 4}) {
      const Watchdog watchdog("repeated rows");
      World world(n_ranks, patient());
      LastToCome last(n_ranks);
      world.run([&](Engine& engine) { expect_no_operation(engine, last, collective, engine.rank(), n_ranks); });
    }
  }
}

// Rank 2 is the second there.
TEST(RepeatedRows, NeedNoOperationInAProcessSet) {
  for (const Collective collective : kRowCollectives) {
    const Watchdog watchdog("repeated rows of a set");
    World world(3, patient());
    LastToCome last(2);
    world.run([&](Engine& engine) {
      const std::uint32_t process_set = add_set(engine, {0, 2});
      if (engine.rank() != 1) expect_no_operation(engine, last, collective, engine.rank() / 2, 2, process_set);
    });
  }
}

TEST(RepeatedRows, OfAnAlltoallInPlace) {
  const Watchdog watchdog("in place");
  World world(3, patient());
  world.run([](Engine& engine) {
    for (int step = 0; step < 20; ++step) {
      RowsCall x(Collective::kAlltoall, "x", engine.rank(), 3, step, 6);
      x.call.tensor.memory.output = reinterpret_cast<std::byte*>(x.values.data());
      ASSERT_TRUE(status_of(perform_rows(engine, x.call)).ok());
      ASSERT_EQ(x.values, x.wanted);
    }
    EXPECT_GT(engine.n_direct(), 0U);
  });
}

TEST(RepeatedRows, OfAReducescatterIntoItsOwnRows) {
  const Watchdog watchdog("in place");
  World world(3, patient());
  world.run([](Engine& engine) {
    for (int step = 0; step < 20; ++step) {
      RowsCall x(Collective::kReducescatter, "x", engine.rank(), 3, step, 6);
      std::int32_t* own = x.values.data() + 2 * kWidth * engine.rank();
      x.call.tensor.memory.output = reinterpret_cast<std::byte*>(own);
      ASSERT_TRUE(status_of(perform_rows(engine, x.call)).ok());
      ASSERT_EQ(Ints(own, own + x.wanted.size()), x.wanted);
    }
    EXPECT_GT(engine.n_direct(), 0U);
  });
}

// Then there is an operation, done already, that has it.
TEST(RepeatedRows, IntoMemoryOfTheEngine) {
  for (const Collective collective : {Collective::kAllgather, Collective::kReducescatter}) {
    const Watchdog watchdog("memory of the engine");
    World world(2, patient());
    world.run([&](Engine& engine) {
      for (int step = 0; step < 20; ++step) {
        for (const std::int64_t n_rows : {5, 1000}) {
          RowsCall x(collective, "x" + std::to_string(n_rows), engine.rank(), 2, step, n_rows);
          x.allocate();
          const Engine::OperationPtr operation = perform_rows(engine, x.call);
          ASSERT_NE(operation, nullptr);
          ASSERT_TRUE(operation->status().ok());
          ASSERT_EQ(output_of(*operation), x.wanted);
          const auto n_rows_got = static_cast<std::int64_t>(x.wanted.size()) / kWidth;
          EXPECT_EQ(operation->outputs().at(0).shape, (Shape{n_rows_got, kWidth}));
        }
      }
      EXPECT_GT(engine.n_direct(), 0U);
    });
  }
}

// Has all ranks make these calls, again until each has seen a direct round: on a busy machine they may come together so
// seldom that the log takes all.
void run_until_direct(World& world, const std::function<void(Engine&)>& calls) {
  std::atomic<int> n_without = 1;
  for (int run = 0; n_without != 0 && run < 100 && !::testing::Test::HasFailure(); ++run) {
    n_without = 0;
    world.run([&](Engine& engine) {
      calls(engine);
      if (engine.n_direct() == 0) ++n_without;
    });
  }
  EXPECT_EQ(n_without, 0);
}

// As much as needs the ring. Some are late, so that some of what was written there is never read.
TEST(RepeatedRows, OfManyBytes) {
  for (const Collective collective : kRowCollectives) {
    const Watchdog watchdog("many bytes");
    WorldOptions options;
    options.config.spin_microseconds = 20;
    World world(2, options);
    run_until_direct(world, [&](Engine& engine) {
      std::mt19937 random(static_cast<unsigned>(engine.rank()) + 5);
      const std::int64_t n_most_rows = (512 << 10) / (kWidth * std::int64_t{sizeof(std::int32_t)});
      for (int step = 0; step < 60; ++step) {
        if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
        for (const std::int64_t n_rows : {std::int64_t{2000}, n_most_rows / 2 * 2, 3 * n_most_rows / 2 * 2}) {
          RowsCall x(collective, "x" + std::to_string(n_rows), engine.rank(), 2, step, n_rows);
          ASSERT_TRUE(status_of(perform_rows(engine, x.call)).ok());
          x.expect_right();
        }
      }
    });
  }
}

// 512 KiB that go to the other rank, and no more.
TEST(RepeatedRows, OfTwoRanksMeetWithWhatIsNotTooMuch) {
  for (const Collective collective : kRowCollectives) {
    const Watchdog watchdog("how much");
    World world(2, patient());
    world.run([&](Engine& engine) {
      const std::int64_t n_bytes_of_row = kWidth * std::int64_t{sizeof(std::int32_t)};
      const std::int64_t n_most = (1 << 20) / n_bytes_of_row / 2 * 2;
      for (const std::int64_t n_rows : {n_most, n_most + 2}) {
        const std::uint64_t n_direct = engine.n_direct();
        for (int step = 0; step < 10; ++step) {
          RowsCall x(collective, "x" + std::to_string(n_rows), engine.rank(), 2, step, n_rows);
          ASSERT_TRUE(status_of(perform_rows(engine, x.call)).ok());
          x.expect_right();
        }
        EXPECT_EQ(engine.n_direct() > n_direct, n_rows == n_most);
      }
    });
  }
}

// Rank 1 contributes one row more. What was given has no room for that; others contribute nothing.
TEST(RepeatedRows, OfAnAllgatherOfUnequalParts) {
  const Watchdog watchdog("unequal parts");
  World world(3, patient());
  world.run([](Engine& engine) {
    const std::int64_t n_rows = engine.rank() == 2 ? 0 : 2 + engine.rank();
    for (int step = 0; step < 20; ++step) {
      RowsCall x(Collective::kAllgather, "x", engine.rank(), 3, step, n_rows);
      Ints wanted = values_of(0, step, 2);
      const Ints more = values_of(1, step, 3);
      wanted.insert(wanted.end(), more.begin(), more.end());
      if (step % 2 == 0) x.allocate();
      const Engine::OperationPtr operation = perform_rows(engine, x.call);
      ASSERT_NE(operation, nullptr);
      ASSERT_TRUE(operation->status().ok()) << operation->status().message();
      ASSERT_EQ(output_of(*operation), wanted);
      EXPECT_TRUE(x.result.is_intact());
    }
    EXPECT_GT(engine.n_direct(), 0U);
  });
}

// The others have come by then.
TEST(RepeatedRows, AreGatheredAnewWhereARankBringsOthers) {
  const Watchdog watchdog("other rows");
  World world(2, patient());
  world.run([](Engine& engine) {
    for (int step = 0; step < 30; ++step) {
      const auto n_rows_of = [step](int rank) { return rank == 1 && step % 3 == 2 ? 4 : 2; };
      RowsCall x(Collective::kAllgather, "x", engine.rank(), 2, step, n_rows_of(engine.rank()));
      const Engine::OperationPtr operation = perform_rows(engine, x.call);
      ASSERT_TRUE(status_of(operation).ok());
      if (step % 3 != 2) {
        x.expect_right();
        continue;
      }
      ASSERT_NE(operation, nullptr);
      Ints wanted = values_of(0, step, 2);
      const Ints more = values_of(1, step, 4);
      wanted.insert(wanted.end(), more.begin(), more.end());
      EXPECT_EQ(output_of(*operation), wanted);
    }
    EXPECT_GT(engine.n_direct(), 0U);
  });
}

TEST(RepeatedRows, OfAnAlltoallMustBeAsManyOnAllRanks) {
  const Watchdog watchdog("other rows");
  World world(2, patient());
  world.run([](Engine& engine) {
    for (int step = 0; step < 12; ++step) {
      const bool is_wrong = step % 4 == 2;
      RowsCall x(Collective::kAlltoall, "x", engine.rank(), 2, step, is_wrong && engine.rank() == 1 ? 4 : 2);
      const Status status = status_of(perform_rows(engine, x.call));
      EXPECT_EQ(status.kind(), is_wrong ? ErrorKind::kMismatch : ErrorKind::kOk) << status.message();
      if (is_wrong) {
        EXPECT_TRUE(contains(status.message(), "[4] on rank 1")) << status.message();
      } else {
        x.expect_right();
      }
    }
    EXPECT_GT(engine.n_direct(), 0U);
  });
}

// It fails while a rank has joined, on all others, whoever of them had come to a round.
TEST(RepeatedRows, OfAnAlltoallNeedAllRanks) {
  const Watchdog watchdog("a rank that has joined");
  World world(3);
  world.run([](Engine& engine) {
    const int n_calls = engine.rank() == 2 ? 3 : 5;
    for (int step = 0; step < n_calls; ++step) {
      RowsCall x(Collective::kAlltoall, "x", engine.rank(), 3, step, 3);
      const Status status = status_of(perform_rows(engine, x.call));
      EXPECT_EQ(status.ok(), step < 3) << status.message();
      if (step < 3) x.expect_right();
    }
    EXPECT_TRUE(engine.wait(submit_request(engine, bare(Collective::kJoin))).ok());
  });
}

// Each rank decides for itself how it calls, and where it wants the result. Some are late, so that others sleep.
TEST(RepeatedRows, MixWithAllOtherCalls) {
  for (const int n_ranks : {2, 3}) {
    const Watchdog watchdog("mixed calls");
    WorldOptions options;
    options.config.spin_microseconds = 50;
    World world(n_ranks, options);
    run_until_direct(world, [n_ranks](Engine& engine) {
      std::mt19937 random(static_cast<unsigned>(engine.rank()) + 11);
      for (int step = 0; step < 400; ++step) {
        const Collective collective = kRowCollectives[static_cast<std::size_t>(step) % 3];
        const std::int64_t n_rows = step % 7 == 0 ? 60 : 12;
        if (random() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
        RowsCall x(collective, std::string(to_string(collective)) + std::to_string(n_rows), engine.rank(), n_ranks,
                   step, n_rows);
        const bool is_given = collective == Collective::kAlltoall || random() % 3 > 0;
        if (!is_given) x.allocate();
        Engine::OperationPtr operation;
        if (random() % 5 == 0) {
          Request request = make_request(x.call);
          request.is_awaited = random() % 2 == 0;
          operation = submit_request(engine, std::move(request));
          static_cast<void>(engine.wait(operation));
        } else {
          operation = perform_rows(engine, x.call);
        }
        ASSERT_TRUE(status_of(operation).ok()) << status_of(operation).message();
        if (is_given) {
          x.expect_right();
        } else {
          ASSERT_EQ(output_of(*operation), x.wanted);
        }
      }
    });
  }
}

}  // namespace
}  // namespace ciranda
