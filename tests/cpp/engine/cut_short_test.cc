// A lane that ends in the middle of its data: lanes of the same ranks that have not lost a member go on.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "engine/engine.hpp"
#include "engine/watchdog.hpp"
#include "engine/world.hpp"

namespace ciranda {
namespace {

using testing::Layout;
using testing::options_for;
using testing::request;
using testing::Watchdog;
using testing::World;
using testing::WorldOptions;

// A collective, and how it is carried out.
class CutShortTest : public ::testing::TestWithParam<std::tuple<Collective, std::string>> {};

// The third of three ranks leaves while all combine a large tensor. The two that stay hear of it, and then go on in the
// set of these two.
TEST_P(CutShortTest, LanesWithoutTheLeaverGoOn) {
  const auto& [collective, algorithm] = GetParam();
  constexpr std::int64_t kCount = 1 << 20;
  constexpr int kMoments = 6;
  constexpr int kMostTries = 20 * kMoments;
  std::atomic<bool> was_in_the_middle{false};
  for (int i = 0; i < kMoments || (i < kMostTries && !was_in_the_middle); ++i) {
    const int moment = i % kMoments;
    const Watchdog watchdog("LanesWithoutTheLeaverGoOn");
    WorldOptions options = options_for(Layout::kChannels, 3);
    options.config.algorithm = algorithm;
    World world(3, options);
    world.run([&, chosen = collective](Engine& engine) {
      std::vector<float> large(kCount, 1.0F);
      Request big = request(chosen, "large", DataType::kFloat32, {kCount}, large.data());
      if (chosen == Collective::kBroadcast) big.signature.root = 0;
      const auto recording = engine.record();
      const Engine::OperationPtr operation = submit_request(engine, std::move(big));
      if (engine.rank() == 2) {
        std::this_thread::sleep_for(std::chrono::microseconds(200 + 300 * moment));
        return engine.shutdown();
      }
      const bool was_cut_short = !engine.wait(operation).ok();  // or it was faster
      Record record;
      ASSERT_TRUE(recording->read(record));
      if (was_cut_short && record[Stage::kAgreed] != 0) was_in_the_middle = true;
      large.assign(large.size(), -1.0F);  // theirs again, whatever is still on its way
      std::vector<float> small(1000, static_cast<float>(engine.rank() + 1));
      Request pair = request(Collective::kAllreduce, "pair", DataType::kFloat32, {1000}, small.data());
      pair.process_set = engine.pair_with(1 - engine.rank());
      const Status status = engine.wait(submit_request(engine, std::move(pair)));
      EXPECT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(small, std::vector<float>(1000, 3.0F));
    });
  }
  EXPECT_TRUE(was_in_the_middle);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, CutShortTest,
    ::testing::Values(std::tuple(Collective::kBroadcast, "star"), std::tuple(Collective::kBroadcast, "chain"),
                      std::tuple(Collective::kAllreduce, "one-shot"), std::tuple(Collective::kAllreduce, "two-shot"),
                      std::tuple(Collective::kAllreduce, "doubling")),
    [](const auto& test) {
      std::string name = std::string(to_string(std::get<0>(test.param))) + "_" + std::get<1>(test.param);
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

}  // namespace
}  // namespace ciranda
