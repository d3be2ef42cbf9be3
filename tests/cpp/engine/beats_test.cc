// A rank sends something to a rank on another host of which it has heard nothing for some time.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "engine/engine.hpp"
#include "engine/mesh_around.hpp"
#include "engine/played_rank.hpp"
#include "engine/watchdog.hpp"
#include "engine/world.hpp"
#include "transport/loopback_fabric.hpp"

namespace ciranda {
namespace {

using testing::impatient_config;
using testing::MeshAround;
using testing::PlayedRank;
using testing::Watchdog;

class QuietOnce final : public MeshAround {
 public:
  using MeshAround::MeshAround;
  std::vector<int> take_quiet_peers() override { return std::exchange(quiet_, {}); }

 private:
  std::vector<int> quiet_{1};
};

TEST(Beats, GoToAQuietPeer) {
  const Watchdog watchdog("a quiet peer");
  LoopbackFabric fabric(3);
  const auto engine = Engine::create(std::make_unique<QuietOnce>(fabric.take_mesh(0)), impatient_config());
  PlayedRank quiet(fabric.take_mesh(1));
  PlayedRank other(fabric.take_mesh(2));
  other.say(0, 0, PingMessage{});  // the engine wakes
  EXPECT_TRUE(quiet.hear<PongMessage>(0).has_value());
}

}  // namespace
}  // namespace ciranda
