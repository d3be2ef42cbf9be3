#include <gtest/gtest.h>

#include "transport/loopback_fabric.hpp"
#include "transport/mesh_conformance.hpp"

namespace ciranda {
namespace {

MeshKind loopback(const std::string& name, const LoopbackOptions& options) {
  return {name, [options](int n_ranks) {
            LoopbackFabric fabric(n_ranks, options);
            Meshes meshes;
            for (int rank = 0; rank < n_ranks; ++rank) {
              meshes.push_back(fabric.take_mesh(rank));
            }
            return meshes;
          }};
}

LoopbackOptions without_arena() {
  LoopbackOptions options;
  options.with_arena = false;
  options.ring_bytes = 256;
  return options;
}

INSTANTIATE_TEST_SUITE_P(Loopback, MeshConformance,
                         ::testing::Combine(::testing::Values(loopback("arena", {}),
                                                              loopback("channels", without_arena())),
                                            ::testing::Values(1, 2, 4, 7)),
                         MeshTestName());

TEST(LoopbackFabric, AKilledRankIsSeenByTheOthersAndSeesNobody) {
  LoopbackFabric fabric(3);
  Meshes meshes;
  for (int rank = 0; rank < 3; ++rank) {
    meshes.push_back(fabric.take_mesh(rank));
  }
  const std::byte byte{1};
  ASSERT_EQ(meshes[1]->data(2).write_some({&byte, 1}), 1U);
  std::thread killer([&] { fabric.kill(1); });
  EXPECT_TRUE(sleep_until(*meshes[2], [&] { return meshes[2]->closed_peers() == std::vector<int>{1}; }));
  killer.join();
  std::byte got{};
  EXPECT_EQ(meshes[2]->data(1).read_some({&got, 1}), 1U);
  EXPECT_EQ(meshes[2]->data(1).state(), ChannelState::kClosed);
  EXPECT_EQ(meshes[2]->data(0).state(), ChannelState::kOpen);
  meshes[1]->poll_events();
  EXPECT_EQ(meshes[1]->closed_peers(), (std::vector<int>{0, 2}));
  EXPECT_EQ(meshes[1]->control(0).write_some({&byte, 1}), 0U);
}

TEST(LoopbackFabric, RanksOfDifferentHostsShareNoMemory) {
  LoopbackOptions options;
  options.hosts = {"a", "a", "b"};
  LoopbackFabric fabric(3, options);
  const auto mesh = fabric.take_mesh(0);
  EXPECT_EQ(mesh->arena(), nullptr);
  EXPECT_TRUE(mesh->peer(1).shares_memory);
  EXPECT_FALSE(mesh->peer(2).shares_memory);
  EXPECT_EQ(mesh->peer(2).host, "b");
}

}  // namespace
}  // namespace ciranda
