// Alltoall, reducescatter, reduce, gather and scatter among other things: many at once, in process sets, with ranks
// that have joined, and with splits that cannot be.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "engine/sets.hpp"
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

using Rows = std::vector<std::int64_t>;
using Values = std::vector<std::int64_t>;

Request of(Collective collective, const std::string& name, Values& values) {
  Request r = request(collective, name, DataType::kInt64, {static_cast<std::int64_t>(values.size())}, values.data());
  if (collective == Collective::kReducescatter) r.memory[0].output = nullptr;
  return r;
}

Values rows_of_output(const Operation& operation, std::size_t index = 0) {
  if (index >= operation.outputs().size()) return {-1};
  const OutputBuffer& output = operation.outputs()[index];
  Values values(output.n_bytes / sizeof(std::int64_t));
  if (output.n_bytes != 0) std::memcpy(values.data(), output.data.get(), output.n_bytes);
  return values;
}

class RowsTogetherTest : public ::testing::TestWithParam<Layout> {};

// All kinds at once, on each rank in an order of its own; splits that change with every round under the same names.
TEST_P(RowsTogetherTest, ManyAtOnceInAnyOrder) {
  constexpr int kRanks = 3;
  World world(kRanks, options_for(GetParam(), kRanks));
  world.run([&](Engine& engine) {
    const int rank = engine.rank();
    for (int round = 0; round < 40; ++round) {
      Values mine(12 * kRanks, rank + 1);
      const auto n = static_cast<std::int64_t>(mine.size());
      std::vector<Request> requests;
      for (int i = 0; i < 4; ++i) {
        const std::string suffix = std::to_string(i);
        requests.push_back(of(Collective::kReducescatter, "reducescatter" + suffix, mine));
        requests.push_back(of(Collective::kAlltoall, "alltoall" + suffix, mine));
        Rows splits{round % 5, 0, (rank + round + i) % 7};
        splits[1] = n - splits[0] - splits[2];
        requests.back().splits = {splits};
        requests.push_back(of(Collective::kGather, "gather" + suffix, mine));
        requests.back().signature.root = i % kRanks;
      }
      std::rotate(requests.begin(), requests.begin() + (5 * rank + round) % 12, requests.end());
      std::vector<std::pair<std::string, Engine::OperationPtr>> pending;
      for (Request& r : requests) {
        const std::string name = r.name;
        pending.emplace_back(name, submit_request(engine, std::move(r)));
      }
      for (const auto& [name, operation] : pending) EXPECT_TRUE(engine.wait(operation).ok()) << name;
      for (const auto& [name, operation] : pending) {
        const int i = name.back() - '0';
        if (name.starts_with("reducescatter")) {
          EXPECT_EQ(rows_of_output(*operation), Values(12, 1 + 2 + 3));
        }
        if (!name.starts_with("alltoall")) continue;
        Values expected;
        for (int from = 0; from < kRanks; ++from) {
          const std::int64_t last = (from + round + i) % 7;
          const std::int64_t n_mine = rank == 0 ? round % 5 : rank == 2 ? last : n - round % 5 - last;
          expected.insert(expected.end(), static_cast<std::size_t>(n_mine), from + 1);
        }
        EXPECT_EQ(rows_of_output(*operation), expected) << name << " round " << round;
      }
    }
  });
}

// Roots are ranks of the world; parts, and received splits, are by place in the set.
TEST_P(RowsTogetherTest, InAProcessSet) {
  World world(4, options_for(GetParam(), 4));
  world.run([&](Engine& engine) {
    const std::uint32_t set = add_set(engine, {1, 3});
    if (engine.rank() % 2 == 0) return;
    const bool is_root = engine.rank() == 3;
    Values mine{engine.rank(), engine.rank() + 10, engine.rank() + 20};
    const auto run = [&](Collective collective, const Rows& splits) {
      Request r = of(collective, "x" + std::to_string(static_cast<int>(collective)), mine);
      r.process_set = set;
      if (info(collective).has_root) r.signature.root = 3;
      if (!splits.empty()) r.splits = {splits};
      auto operation = submit_request(engine, std::move(r));
      const Status status = engine.wait(operation);
      EXPECT_TRUE(status.ok()) << status.message();
      return operation;
    };
    EXPECT_EQ(rows_of_output(*run(Collective::kReducescatter, {})), (is_root ? Values{44} : Values{4, 24}));
    const auto exchanged = run(Collective::kAlltoall, is_root ? Rows{1, 2} : Rows{0, 3});
    EXPECT_EQ(rows_of_output(*exchanged), (is_root ? Values{1, 11, 21, 13, 23} : Values{3}));
    EXPECT_EQ(rows_of_output(*exchanged, 1), (is_root ? Values{3, 2} : Values{0, 1}));
    EXPECT_EQ(rows_of_output(*run(Collective::kGather, {})), (is_root ? Values{1, 11, 21, 3, 13, 23} : Values{-1}));
    EXPECT_EQ(rows_of_output(*run(Collective::kScatter, {})), (is_root ? Values{23} : Values{3, 13}));
    EXPECT_EQ(rows_of_output(*run(Collective::kScatter, {0, 3})), (is_root ? Values{3, 13, 23} : Values{}));
    run(Collective::kReduce, {});  // in place
    EXPECT_EQ(mine, (is_root ? Values{4, 24, 44} : Values{1, 11, 21}));
  });
}

// Who has joined counts for nothing, contributes nothing, and holds nobody up.
TEST_P(RowsTogetherTest, WithRanksThatHaveJoined) {
  World world(3, options_for(GetParam(), 3));
  world.run([&](Engine& engine) {
    Request join = bare(Collective::kJoin);
    if (engine.rank() != 1) {
      Values mine{3, 6, 9, 12};
      const auto wait_for = [&](Request r) {
        auto operation = submit_request(engine, std::move(r));
        const Status status = engine.wait(operation);
        EXPECT_TRUE(status.ok()) << status.message();
        return operation;
      };
      Request average = of(Collective::kReducescatter, "reducescatter", mine);
      average.signature.op = ReduceOp::kAverage;
      EXPECT_EQ(rows_of_output(*wait_for(average)), (engine.rank() == 0 ? Values{3, 6} : Values{12}));
      Request lowest = of(Collective::kReduce, "reduce", mine);
      lowest.signature.op = ReduceOp::kMin;
      lowest.signature.root = 2;
      wait_for(lowest);
      EXPECT_EQ(mine, (Values{3, 6, 9, 12}));
      Request exchange = of(Collective::kAlltoall, "alltoall", mine);
      exchange.splits = {{1, 1, 2}};
      const auto exchanged = wait_for(exchange);
      EXPECT_EQ(rows_of_output(*exchanged), (engine.rank() == 0 ? Values{3, 3} : Values{9, 12, 9, 12}));
      EXPECT_EQ(rows_of_output(*exchanged, 1), (engine.rank() == 0 ? Values{1, 0, 1} : Values{2, 0, 2}));
      Request gather = of(Collective::kGather, "gather", mine);
      gather.signature.root = 0;
      const auto gathered = wait_for(gather);
      EXPECT_EQ(rows_of_output(*gathered).size(), engine.rank() == 0 ? 8U : 1U);
      Request scatter = of(Collective::kScatter, "scatter", mine);
      scatter.signature.root = 0;
      EXPECT_EQ(rows_of_output(*wait_for(scatter)), (engine.rank() == 0 ? Values{3, 6} : Values{12}));
    }
    EXPECT_TRUE(engine.wait(submit_request(engine, join)).ok());
  });
}

// One error on every rank, which names the rank; and the name can be used again.
TEST_P(RowsTogetherTest, SplitsOfOneRankThatCannotBeFailEverywhere) {
  World world(3, options_for(GetParam(), 3));
  world.run([&](Engine& engine) {
    for (int round = 0; round < 3; ++round) {
      Values mine(3, engine.rank());
      Request bad = of(Collective::kAlltoall, "x", mine);
      bad.splits = {engine.rank() == 1 ? Rows{1, 1, 2} : Rows{1, 1, 1}};
      const auto failed = submit_request(engine, bad);
      const Status status = engine.wait(failed);
      EXPECT_EQ(status.kind(), ErrorKind::kInvalidArgument);
      EXPECT_EQ(status.message(), engine.rank() == 1
                                      ? "alltoall 'x': splits [1, 1, 2] must add up to the first dimension of the "
                                        "tensor, whose shape is [3]."
                                      : "alltoall 'x': rank 1 gave splits that cannot be; its own error says why. No "
                                        "rank got anything.");
      EXPECT_TRUE(failed->outputs().empty());
      Request scatter = of(Collective::kScatter, "y", mine);
      scatter.signature.root = 2;
      scatter.splits = {{1, 1}};  // which only the root's are looked at
      EXPECT_NE(engine.wait(submit_request(engine, scatter))
                    .message()
                    .find(engine.rank() == 2 ? "3 ranks, these are 2" : "rank 2"),
                std::string::npos);
      const auto good = submit_request(engine, of(Collective::kAlltoall, "x", mine));
      EXPECT_TRUE(engine.wait(good).ok());
      EXPECT_EQ(rows_of_output(*good), (Values{0, 1, 2}));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, RowsTogetherTest, ::testing::ValuesIn(kLayouts),
                         [](const auto& test) { return testing::to_string(test.param); });

}  // namespace
}  // namespace ciranda
