// Allgather, reducescatter and alltoall by round, without the coordinator: that they do meet, and that the results
// are those of calls that do not.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "engine/watchdog.hpp"
#include "engine/world.hpp"

namespace ciranda {
namespace {

using testing::patient;
using testing::request;
using testing::Watchdog;
using testing::World;

using Rows = std::vector<std::int64_t>;
using Floats = std::vector<float>;

constexpr int kDirectSteps = 8;
constexpr std::int64_t kDirectWidth = 3;

Engine::OperationPtr call(Engine& engine, Request r, bool is_awaited = true) {
  r.is_awaited = is_awaited;
  Engine::OperationPtr operation = submit_request(engine, std::move(r));
  if (!is_awaited) testing::poll_until_done(engine, operation);
  static_cast<void>(engine.wait(operation));
  return operation;
}

// Rows of kDirectWidth that tell who sends them to whom in which step.
Floats rows_of(std::int64_t n_rows, int from, int to, int step) {
  Floats values(static_cast<std::size_t>(n_rows * kDirectWidth));
  std::iota(values.begin(), values.end(), static_cast<float>(1000 * from + 100 * to + 10000 * step));
  return values;
}

void append(Floats& to, const Floats& more) { to.insert(to.end(), more.begin(), more.end()); }

template <typename T>
std::vector<T> output(const Operation& operation, std::size_t index) {
  if (index >= operation.outputs().size()) return {};
  const OutputBuffer& buffer = operation.outputs()[index];
  std::vector<T> values(buffer.n_bytes / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), buffer.data.get(), buffer.n_bytes);
  return values;
}

Request rows_request(Collective collective, const std::string& name, Floats& values) {
  return request(collective, name, DataType::kFloat32,
                 {static_cast<std::int64_t>(values.size()) / kDirectWidth, kDirectWidth}, values.data());
}

// Some ranks have no rows; in the middle one rank has others than before.
std::int64_t n_rows_of(int rank, int step) { return rank == 1 && step >= kDirectSteps / 2 ? 5 : 2 * (rank % 2); }

TEST(RowsInDirectRounds, AllgathersOfAsManyRowsAsEachHas) {
  for (const int n_ranks : {2, 3, 4}) {
    const Watchdog watchdog("rounds");
    World world(n_ranks, patient());
    world.run([&](Engine& engine) {
      for (int step = 0; step < kDirectSteps; ++step) {
        Floats expected;
        for (int rank = 0; rank < n_ranks; ++rank) append(expected, rows_of(n_rows_of(rank, step), rank, 0, step));
        Floats own = rows_of(n_rows_of(engine.rank(), step), engine.rank(), 0, step);
        Floats second{static_cast<float>(engine.rank())};
        Request r = rows_request(Collective::kAllgather, "x", own);
        r.signature.tensors.push_back({DataType::kFloat32, {1}});
        r.memory.push_back({reinterpret_cast<const std::byte*>(second.data()), nullptr});
        const auto operation = call(engine, std::move(r));
        ASSERT_TRUE(operation->status().ok()) << operation->status().message();
        EXPECT_EQ(output<float>(*operation, 0), expected);
        EXPECT_EQ(operation->outputs()[0].shape,
                  (Shape{static_cast<std::int64_t>(expected.size()) / kDirectWidth, kDirectWidth}));
        EXPECT_EQ(output<float>(*operation, 1).back(), static_cast<float>(n_ranks - 1));
      }
      EXPECT_GT(engine.n_direct(), 0U);
      EXPECT_LE(engine.n_direct(), kDirectSteps - 2U);
    });
  }
}

TEST(RowsInDirectRounds, AnAllgatherIntoMemoryThatIsThere) {
  const Watchdog watchdog("rounds");
  World world(2, patient());
  world.run([](Engine& engine) {
    for (int step = 0; step < kDirectSteps; ++step) {
      Floats own = rows_of(2, engine.rank(), 0, step);
      Floats all(2 * own.size());
      Request r = request(Collective::kAllgather, "x", DataType::kFloat32, {2, kDirectWidth}, own.data(), all.data());
      r.has_room_for_all = true;
      ASSERT_TRUE(call(engine, std::move(r))->status().ok());
      Floats expected = rows_of(2, 0, 0, step);
      append(expected, rows_of(2, 1, 0, step));
      EXPECT_EQ(all, expected);
    }
    EXPECT_GT(engine.n_direct(), 0U);
  });
}

// The same bits as by the algorithm for large tensors; more ranks than rows too.
TEST(RowsInDirectRounds, ReducescattersGiveTheSameBits) {
  for (const int n_ranks : {2, 3, 4}) {
    const Watchdog watchdog("rounds");
    World world(n_ranks, patient());
    world.run([&](Engine& engine) {
      for (int step = 0; step < kDirectSteps; ++step) {
        for (const std::int64_t n_rows : {1, 7, 64}) {
          Floats values = rows_of(n_rows, engine.rank(), 0, step);
          for (float& value : values) value = 1.0F / (value + 3);
          const auto sum = [&](bool is_awaited) {
            const std::string name = (is_awaited ? "met " : "not met ") + std::to_string(n_rows);
            Request r = rows_request(Collective::kReducescatter, name, values);
            r.memory.front().output = nullptr;
            r.signature.op = ReduceOp::kAverage;
            r.signature.prescale = 0.7;
            return call(engine, std::move(r), is_awaited);
          };
          const auto met = sum(true);
          const auto not_met = sum(false);
          ASSERT_TRUE(met->status().ok()) << met->status().message();
          EXPECT_EQ(output<std::uint32_t>(*met, 0), output<std::uint32_t>(*not_met, 0));
          EXPECT_EQ(met->outputs()[0].shape, not_met->outputs()[0].shape);
        }
      }
      EXPECT_GT(engine.n_direct(), 0U);
    });
  }
}

// What a rank sends to another, which changes with every call; in one step more than there is room for.
std::int64_t n_rows_to(int from, int to, int step) {
  return step == kDirectSteps / 2 && from == 0 ? 300 : (from + 2 * to + step) % 4;
}

Request alltoall(Floats& own, const Rows& splits) {
  Request r = rows_request(Collective::kAlltoall, "x", own);
  r.memory.front().output = nullptr;
  r.splits = {splits};
  return r;
}

TEST(RowsInDirectRounds, AlltoallsWithOtherSplitsEachTime) {
  for (const int n_ranks : {2, 3, 4}) {
    const Watchdog watchdog("rounds");
    World world(n_ranks, patient());
    world.run([&](Engine& engine) {
      for (int step = 0; step < kDirectSteps; ++step) {
        Floats own;
        Floats expected;
        Rows splits;
        Rows received;
        for (int other = 0; other < n_ranks; ++other) {
          splits.push_back(n_rows_to(engine.rank(), other, step));
          received.push_back(n_rows_to(other, engine.rank(), step));
          append(own, rows_of(splits.back(), engine.rank(), other, step));
          append(expected, rows_of(received.back(), other, engine.rank(), step));
        }
        const auto operation = call(engine, alltoall(own, splits));
        ASSERT_TRUE(operation->status().ok()) << operation->status().message();
        EXPECT_EQ(output<float>(*operation, 0), expected);
        EXPECT_EQ(output<std::int64_t>(*operation, 1), received);
      }
      EXPECT_GT(engine.n_direct(), 0U);
      EXPECT_LE(engine.n_direct(), kDirectSteps - 2U);
    });
  }
}

TEST(RowsInDirectRounds, AnAlltoallThatKeepsItsRowsMayLieWhereItsInputIs) {
  const Watchdog watchdog("rounds");
  World world(2, patient());
  world.run([](Engine& engine) {
    for (int step = 0; step < kDirectSteps; ++step) {
      Floats own = rows_of(1, engine.rank(), 0, step);
      append(own, rows_of(1, engine.rank(), 1, step));
      Request r = rows_request(Collective::kAlltoall, "x", own);
      r.has_room_for_all = true;
      ASSERT_TRUE(call(engine, std::move(r))->status().ok());
      Floats expected = rows_of(1, 0, engine.rank(), step);
      append(expected, rows_of(1, 1, engine.rank(), step));
      EXPECT_EQ(own, expected);
    }
    EXPECT_GT(engine.n_direct(), 0U);
  });
}

// All ranks hear of splits that cannot be, and go on afterwards.
TEST(RowsInDirectRounds, SplitsThatCannotBeAreAnErrorOnAllRanks) {
  const Watchdog watchdog("rounds");
  World world(2, patient());
  world.run([](Engine& engine) {
    for (int step = 0; step < kDirectSteps; ++step) {
      const bool is_wrong = step % 4 == 2 && engine.rank() == 1;
      Floats own = rows_of(3, engine.rank(), 0, step);
      const auto operation = call(engine, alltoall(own, is_wrong ? Rows{3, 1} : Rows{2, 1}));
      EXPECT_EQ(operation->status().ok(), step % 4 != 2) << operation->status().message();
    }
  });
}

}  // namespace
}  // namespace ciranda
