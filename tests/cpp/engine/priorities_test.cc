// Of what is ready, the most urgent is carried out first, whenever it was submitted; and results are those without
// priorities.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <latch>
#include <string>
#include <vector>

#include "engine/world.hpp"

namespace ciranda::testing {
namespace {

constexpr std::int64_t kCount = 1 << 18;  // a mebibyte each: four of them are carried out in advance
constexpr int kTensors = 12;

class PrioritiesTest : public ::testing::TestWithParam<Layout> {};

// All ranks submit the same tensors, in the same order, the last with another priority than the rest. Returns which was
// done when on rank 0.
std::vector<int> order_of_ends(World& world, std::int32_t priority_of_last) {
  std::vector<int> ends(kTensors);
  std::atomic<int> n_ended{0};
  world.run([&](Engine& engine) {
    std::vector<std::vector<float>> tensors(kTensors,
                                            std::vector<float>(kCount, static_cast<float>(engine.rank() + 1)));
    std::vector<Engine::OperationPtr> operations;
    std::latch are_noted(kTensors);  // who waits for a call may go on before it is called back for
    for (int i = 0; i < kTensors; ++i) {
      Request r = request(Collective::kAllreduce, "t" + std::to_string(i), DataType::kFloat32, {kCount},
                          tensors[static_cast<std::size_t>(i)].data());
      r.is_deferrable = true;
      r.priority = i == kTensors - 1 ? priority_of_last : 0;
      r.calls_back_directly = true;
      const auto note = [&, i](const Operation&) {
        if (engine.rank() == 0) ends[static_cast<std::size_t>(n_ended.fetch_add(1))] = i;
        are_noted.count_down();
      };
      operations.push_back(submit_request(engine, std::move(r), note));
    }
    for (const auto& operation : operations) EXPECT_TRUE(engine.wait(operation).ok());
    are_noted.wait();
    const auto sum = static_cast<float>(world.size() * (world.size() + 1) / 2);
    for (const std::vector<float>& tensor : tensors) {
      EXPECT_TRUE(std::all_of(tensor.begin(), tensor.end(), [sum](float value) { return value == sum; }));
    }
  });
  return ends;
}

// Ranks may be so fast that all but the last is done before the last is there.
TEST_P(PrioritiesTest, WhatIsUrgentOvertakes) {
  World world(2, options_for(GetParam(), 2));
  bool has_overtaken = false;
  for (int attempt = 0; attempt < 200 && !has_overtaken; ++attempt) {
    has_overtaken = order_of_ends(world, 1).back() != kTensors - 1;
  }
  EXPECT_TRUE(has_overtaken);
}

INSTANTIATE_TEST_SUITE_P(Layouts, PrioritiesTest, ::testing::ValuesIn(kLayouts),
                         [](const auto& test) { return to_string(test.param); });

}  // namespace
}  // namespace ciranda::testing
