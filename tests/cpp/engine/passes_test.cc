// How often the engine goes through a caller's memory: what a rank contributes is read once (but where it goes to every
// peer apart, once for each), its result is written once (and where ranks share no memory, peers are sent it from
// there), and factors, averages and weights cost no more.
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.hpp"
#include "engine/world.hpp"
#include "kernels/page_watch.hpp"

namespace ciranda {
namespace {

using kernels::testing::PageWatch;
using testing::kLayouts;
using testing::Layout;
using testing::options_for;
using testing::request;
using testing::World;
using testing::WorldOptions;

constexpr int kSize = 3;
constexpr std::size_t kBytes = kSize << 17;

struct Scaling {
  std::string what;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1;
  double postscale = 1;
  std::optional<double> weight = {};
};

const std::vector<Scaling>& scalings() {
  static const std::vector<Scaling> all{
      {"none"},
      {"factors", ReduceOp::kSum, 0.5, 3},
      {"average", ReduceOp::kAverage},
      {"average and factors", ReduceOp::kAverage, 0.5, 3},
      {"weights and factors", ReduceOp::kAverage, 0.5, 3, 0.25},
  };
  return all;
}

class EnginePassesTest : public ::testing::TestWithParam<Layout> {
 protected:
#ifdef __SANITIZE_THREAD__
  void SetUp() override { GTEST_SKIP() << "memory is watched in a signal handler, between any two instructions"; }
#endif

  // Several slots, of so many pages that those on a boundary, which are come back to, count for little.
  static WorldOptions options(std::int64_t one_shot_bytes) {
    WorldOptions options = options_for(GetParam(), kSize);
    options.fabric.slot_bytes = 1 << 17;
    options.config.slot_bytes = 1 << 17;
    options.config.one_shot_bytes = one_shot_bytes;
    return options;
  }
};

Request reduction(Collective collective, DataType dtype, const Scaling& scaling, std::byte* input, std::byte* output) {
  const auto count = static_cast<std::int64_t>(kBytes / size_of(dtype));
  Request r = request(collective, std::string(to_string(collective)) + scaling.what, dtype, {count}, input, output);
  r.signature.op = scaling.op;
  r.signature.prescale = scaling.prescale;
  r.signature.postscale = scaling.postscale;
  r.signature.is_weighted = scaling.weight.has_value();
  r.weight = scaling.weight.value_or(1);
  if (info(collective).has_root) r.signature.root = 0;
  return r;
}

// A page that is left for others, and come back to, counts twice.
constexpr double kALittle = 0.3;

struct Passes {
  double over_input = 0;
  double over_output = 0;
};

Passes passes_of(Engine& engine, Request request, PageWatch& input, PageWatch& output) {
  input.start();
  output.start();
  const Status status = engine.wait(submit_request(engine, std::move(request)));
  const Passes passes{input.n_passes(), output.n_passes()};
  EXPECT_TRUE(status.ok()) << status.message();
  return passes;
}

TEST_P(EnginePassesTest, ScalingCostsNone) {
  for (const std::int64_t one_shot_bytes : {0, 1 << 20}) {
    const bool goes_to_each_peer = GetParam() != Layout::kArena && one_shot_bytes != 0;
    std::array<PageWatch, kSize> inputs{PageWatch(kBytes), PageWatch(kBytes), PageWatch(kBytes)};
    std::array<PageWatch, kSize> outputs{PageWatch(kBytes), PageWatch(kBytes), PageWatch(kBytes)};
    World world(kSize, options(one_shot_bytes));
    world.run([&](Engine& engine) {
      PageWatch& input = inputs[static_cast<std::size_t>(engine.rank())];
      PageWatch& output = outputs[static_cast<std::size_t>(engine.rank())];
      for (const Collective collective : {Collective::kAllreduce, Collective::kReduce, Collective::kReducescatter}) {
        for (const DataType dtype : {DataType::kFloat32, DataType::kFloat16}) {
          std::optional<Passes> unscaled;
          for (const Scaling& scaling : scalings()) {
            if (scaling.weight && collective != Collective::kAllreduce) continue;
            SCOPED_TRACE(std::string(to_string(collective)) + " of " + std::string(to_string(dtype)) + ", " +
                         scaling.what + ", rank " + std::to_string(engine.rank()));
            const Passes passes =
                passes_of(engine, reduction(collective, dtype, scaling, input.data(), output.data()), input, output);
            if (!unscaled) unscaled = passes;
            EXPECT_LE(passes.over_input, (goes_to_each_peer ? kSize : 1) + kALittle);
            const bool is_sent_on =
                collective == Collective::kAllreduce && GetParam() != Layout::kArena && one_shot_bytes == 0;
            EXPECT_LE(passes.over_output, 1 + (is_sent_on ? (kSize - 1.0) / kSize : 0) + kALittle);
            EXPECT_NEAR(passes.over_input, unscaled->over_input, kALittle);
            EXPECT_NEAR(passes.over_output, unscaled->over_output, kALittle);
          }
        }
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, EnginePassesTest, ::testing::ValuesIn(kLayouts),
                         [](const auto& layout) { return testing::to_string(layout.param); });

}  // namespace
}  // namespace ciranda
