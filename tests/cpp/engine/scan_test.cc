// Scan: that each rank gets, bit by bit, what an allreduce among the ranks up to itself gives: by the log and by direct
// rounds, of every op and element type; in groups, in process sets, repeated, without names, and with ranks that have
// joined.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "call_of_one.hpp"
#include "engine/coming.hpp"
#include "engine/conformance.hpp"
#include "engine/sets.hpp"
#include "engine/small_sums.hpp"
#include "engine/watchdog.hpp"

namespace ciranda {
namespace {

using namespace testing::conformance;
using testing::bare;
using testing::Homes;
using testing::kLayouts;
using testing::Layout;
using testing::options_for;
using testing::request;
using testing::submit;
using testing::wait_at_home;
using testing::Watchdog;
using testing::World;

using Values = std::vector<std::int64_t>;

// What rank `rank` gets.
Bytes expected_on(int rank, Reduction reduction, std::vector<Bytes> inputs, std::size_t count) {
  inputs.resize(static_cast<std::size_t>(rank) + 1);
  reduction.n_average = rank + 1;
  return kernels::testing::expected(reduction, inputs, count);
}

class ScanConformanceTest : public ::testing::TestWithParam<Case> {
 protected:
  ScanConformanceTest() : worlds_(size(), std::get<2>(GetParam())) {}
  int size() const { return std::get<0>(GetParam()); }
  DataType dtype() const { return std::get<1>(GetParam()); }

  void expect_scans(Layout layout, const Reduction& reduction, const std::vector<Bytes>& all, std::size_t count) {
    worlds_[layout].run([&](Engine& engine) {
      const int rank = engine.rank();
      const Bytes expected = expected_on(rank, reduction, all, count);
      for (const bool is_awaited : {false, true}) {
        if (is_awaited && layout != Layout::kArena) continue;  // it makes a difference where ranks may meet in memory
        for (const auto& [misalignment, in_place] : kPlacements) {
          SCOPED_TRACE(std::string(to_string(reduction.op)) + ", " + to_string(layout) + ", count " +
                       std::to_string(count) + (is_awaited ? ", awaited" : "") + (in_place ? ", in place" : ""));
          Operand operand(all[static_cast<std::size_t>(rank)], misalignment, in_place);
          Request r = request(Collective::kScan, std::string(to_string(reduction.op)), dtype(),
                              {static_cast<std::int64_t>(count)}, nullptr);
          r.memory = {operand.memory()};
          r.is_awaited = is_awaited;
          r.signature.op = reduction.op;
          r.signature.prescale = reduction.prescale;
          r.signature.postscale = reduction.postscale;
          const Status status = wait_at_home(engine, submit(engine, std::move(r)));
          ASSERT_TRUE(status.ok()) << status.message();
          operand.expect(expected);
        }
      }
    });
  }

  Worlds worlds_;
};

TEST_P(ScanConformanceTest, EveryOp) {
  for (const ReduceOpInfo& op : kReduceOps) {
    if (!accepts(op.op, dtype()) || !op.is_elementwise) continue;
    for (const std::size_t count : counts(dtype())) {
      const auto all = kernels::testing::make_inputs(dtype(), static_cast<std::size_t>(size()), count, count + 1);
      for (const Factors& factors : kFactors) {
        if ((factors.prescale != 1 || factors.postscale != 1) && !accepts_factors(op.op, dtype())) continue;
        const Reduction reduction{dtype(), op.op, factors.prescale, factors.postscale, 1, {}};
        for (const Layout layout : kLayouts) expect_scans(layout, reduction, all, count);
        if (HasFailure()) return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryType, ScanConformanceTest,
                         ::testing::Combine(::testing::Values(2), ::testing::ValuesIn(all_types()),
                                            ::testing::Values(Homes::kHost)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(EverySize, ScanConformanceTest,
                         ::testing::Combine(::testing::Values(1, 4, 7), ::testing::ValuesIn(kTypesBySize),
                                            ::testing::Values(Homes::kHost)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(MixedWithHost, ScanConformanceTest, kMixedWithHost, name_of);
#ifndef CIRANDA_SANITIZED
INSTANTIATE_TEST_SUITE_P(OnGpu, ScanConformanceTest, kOnGpu, name_of);
#endif

class ScanTest : public ::testing::TestWithParam<Layout> {};

Request scan(const std::string& name, Values& values) {
  return request(Collective::kScan, name, DataType::kInt64, {static_cast<std::int64_t>(values.size())}, values.data());
}

// Of several types; one tensor is empty, one has fewer elements than there are ranks.
TEST_P(ScanTest, AGroup) {
  World world(3, options_for(GetParam(), 3));
  world.run([](Engine& engine) {
    const int rank = engine.rank();
    Values a{rank, 10 * rank};
    Values none;
    std::vector<float> b(100, static_cast<float>(rank + 1));
    Values c(50, 1);
    Request r = scan("group", a);
    for (Values* more : {&none, &c}) {
      Request other = scan("", *more);
      r.signature.tensors.push_back(other.signature.tensors.front());
      r.memory.push_back(other.memory.front());
    }
    r.signature.tensors.push_back({DataType::kFloat32, {20, 5}});
    r.memory.push_back({reinterpret_cast<std::byte*>(b.data()), reinterpret_cast<std::byte*>(b.data())});
    const Status status = engine.wait(submit(engine, std::move(r)));
    ASSERT_TRUE(status.ok()) << status.message();
    const int sum = rank * (rank + 1) / 2;
    EXPECT_EQ(a, (Values{sum, 10 * sum}));
    EXPECT_EQ(b, std::vector<float>(100, static_cast<float>(sum + rank + 1)));
    EXPECT_EQ(c, Values(50, rank + 1));
  });
}

// Ranks that have joined count for nothing, but for the divisor that counts all.
TEST_P(ScanTest, WithARankThatHasJoined) {
  World world(3, options_for(GetParam(), 3));
  world.run([](Engine& engine) {
    Request join = bare(Collective::kJoin);
    if (engine.rank() != 1) {
      for (int step = 0; step < 3; ++step) {
        Values mine(7, 6 * (engine.rank() + 1) + step);
        ASSERT_TRUE(engine.wait(submit(engine, scan("sum", mine))).ok());
        EXPECT_EQ(mine, Values(7, engine.rank() == 0 ? 6 + step : 24 + 2 * step));
        for (const bool divides_by_all : {false, true}) {
          mine.assign(7, 6 * (engine.rank() + 1));
          Request r = scan(divides_by_all ? "of all" : "average", mine);
          r.signature.op = ReduceOp::kAverage;
          r.signature.divides_by_all = divides_by_all;
          ASSERT_TRUE(engine.wait(submit(engine, std::move(r))).ok());
          EXPECT_EQ(mine, Values(7, engine.rank() == 0 ? 6 : divides_by_all ? 8 : 12));
        }
      }
    }
    ASSERT_TRUE(engine.wait(submit(engine, std::move(join))).ok());
  });
}

INSTANTIATE_TEST_SUITE_P(EveryLayout, ScanTest, ::testing::ValuesIn(kLayouts),
                         [](const auto& test) { return to_string(test.param); });

// Blocking calls that are made again, with a name and without, meet without the coordinator and without a request.
TEST(Scan, RepeatedCallsMeet) {
  const Watchdog watchdog("repeated scans");
  for (const bool is_named : {true, false}) {
    World world(3, testing::patient());
    world.run([&](Engine& engine) {
      const int rank = engine.rank();
      const std::uint64_t n_direct = testing::meet(engine, 20, [&](int step) {
        std::vector<float> values(33, static_cast<float>(rank + step));
        const std::int64_t shape = 33;
        auto* memory = reinterpret_cast<std::byte*>(values.data());
        testing::CallOfOne call({.collective = Collective::kScan}, is_named ? "s" : "");
        call.tensor.shape = {&shape, 1};
        call.tensor.memory = {memory, memory};
        const auto repeated = repeat(engine, call);
        if (!repeated || *repeated != nullptr) {
          ASSERT_TRUE(engine.wait(repeated ? *repeated : submit(engine, make_request(call))).ok());
        }
        ASSERT_EQ(values, std::vector<float>(33, static_cast<float>(rank * (rank + 1) / 2 + (rank + 1) * step)));
      });
      EXPECT_EQ(n_direct, 20U);
    });
  }
}

TEST(Scan, RefusesWhatItCannotDo) {
  World world(1, {});
  world.run([](Engine& engine) {
    std::vector<float> values(3);
    for (const bool is_weighted : {false, true}) {
      Request r = request(Collective::kScan, "x", DataType::kFloat32, {3}, values.data());
      r.signature.op = is_weighted ? ReduceOp::kAverage : ReduceOp::kAdasum;
      r.signature.is_weighted = is_weighted;
      const Status status = engine.wait(submit(engine, std::move(r)));
      EXPECT_EQ(status.kind(), ErrorKind::kInvalidArgument);
      EXPECT_TRUE(contains(status.message(), "allreduce")) << status.message();
    }
  });
}

}  // namespace
}  // namespace ciranda
