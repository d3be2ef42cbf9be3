// Weighted averages: each call by its own weights, whoever has joined and whatever travels together.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "engine/sets.hpp"
#include "engine/world.hpp"

namespace ciranda {
namespace {

using testing::bare;
using testing::kLayouts;
using testing::Layout;
using testing::options_for;
using testing::request;
using testing::World;

Request average_of(std::vector<double>& values, std::string name, double weight) {
  Request r = request(Collective::kAllreduce, std::move(name), DataType::kFloat64,
                      {static_cast<std::int64_t>(values.size())}, values.data());
  r.signature.op = ReduceOp::kAverage;
  r.signature.is_weighted = true;
  r.weight = weight;
  return r;
}

class WeightedTest : public ::testing::TestWithParam<Layout> {};

TEST_P(WeightedTest, WeighsThoseThatHaveNotJoinedByTheirOwn) {
  World world(3, options_for(GetParam(), 3));
  world.run([](Engine& engine) {
    for (int step = 0; step < 3 && engine.rank() != 1; ++step) {
      for (const std::size_t count : {3U, 100'000U}) {
        std::vector<double> values(count, engine.rank());
        const double weight = engine.rank() == 0 ? 1 : 3;
        const auto average = submit_request(engine, average_of(values, "x" + std::to_string(count), weight));
        ASSERT_TRUE(engine.wait(average).ok());
        ASSERT_EQ(values.back(), (1 * 0 + 3 * 2) / 4.0);
      }
    }
    ASSERT_TRUE(engine.wait(submit_request(engine, bare(Collective::kJoin))).ok());
  });
}

// The same calls in each step, so that they are agreed on together, and may travel so.
TEST_P(WeightedTest, OfManyAtOnceEachHasItsOwnWeights) {
  constexpr int kRanks = 3;
  World world(kRanks, options_for(GetParam(), kRanks));
  world.run([](Engine& engine) {
    for (int step = 0; step < 6; ++step) {
      std::vector<std::vector<double>> values(8, std::vector<double>(5, engine.rank()));
      std::vector<Engine::OperationPtr> averages;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const auto k = static_cast<double>(i / 2);  // two of the same weights, and others after them
        averages.push_back(
            submit_request(engine, average_of(values[i], "x" + std::to_string(i), 1 + k * engine.rank())));
      }
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_TRUE(engine.wait(averages[i]).ok());
        const auto k = static_cast<double>(i / 2);
        ASSERT_DOUBLE_EQ(values[i].back(), ((1 + k) + 2 * (1 + 2 * k)) / (3 + 3 * k)) << i << ", step " << step;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, WeightedTest, ::testing::ValuesIn(kLayouts),
                         [](const auto& layout) { return testing::to_string(layout.param); });

}  // namespace
}  // namespace ciranda
