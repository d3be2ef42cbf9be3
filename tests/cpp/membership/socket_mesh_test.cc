// The real mesh against the suite of all meshes: by shared memory, by TCP, by both, over IPv4 and IPv6.
#include <gtest/gtest.h>

#include "membership/test_job.hpp"

namespace ciranda {
namespace {

MeshKind kind(const std::string& name, const std::string& bind, const Tweak& tweak) {
  return {name, [bind, tweak](int n_ranks) { return TestJob(n_ranks, "job", bind).join_well(tweak); }};
}

void tcp_only(BootstrapOptions& options) { options.use_shared_memory = false; }
void striped(BootstrapOptions& options) {
  options.use_shared_memory = false;
  options.n_sockets = 3;
}
void unchecked(BootstrapOptions& options) {
  options.use_shared_memory = false;
  options.wire = "none";
}
void two_interfaces(BootstrapOptions& options) {
  options.use_shared_memory = false;
  options.interface = "127.0.0.1,::1";
}
void two_hosts(BootstrapOptions& options) { options.host_id = options.rank < 2 ? "first" : "second"; }

INSTANTIATE_TEST_SUITE_P(
    Socket, MeshConformance,
    ::testing::Combine(::testing::Values(kind("shared", "127.0.0.1", {}), kind("tcp", "127.0.0.1", tcp_only),
                                         kind("striped", "127.0.0.1", striped),
                                         kind("unchecked", "127.0.0.1", unchecked),
                                         kind("mixed", "127.0.0.1", two_hosts), kind("ipv6", "::1", tcp_only),
                                         kind("two_interfaces", "127.0.0.1", two_interfaces)),
                       ::testing::Values(1, 2, 4, 7)),
    MeshTestName());

TEST(SocketMesh, SharesAnArenaOnlyWhenAllRanksShareMemory) {
  for (const auto& mesh : TestJob(3).join_well()) {
    ASSERT_NE(mesh->arena(), nullptr);
    EXPECT_EQ(mesh->arena()->slot_bytes(), 65536U);
  }
  for (const auto& mesh : TestJob(3).join_well(two_hosts)) {
    EXPECT_EQ(mesh->arena(), nullptr);
  }
  const auto mixed = TestJob(3).join_well(two_hosts);
  EXPECT_TRUE(mixed[0]->peer(1).shares_memory);
  EXPECT_FALSE(mixed[0]->peer(2).shares_memory);
  EXPECT_FALSE(mixed[2]->peer(0).shares_memory);
}

}  // namespace
}  // namespace ciranda
