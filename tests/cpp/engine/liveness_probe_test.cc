// LivenessProbe: a peer is silent if it does not answer a question; one that was asked nothing has nothing to say.
#include "engine/liveness_probe.hpp"

#include <gtest/gtest.h>

#include <chrono>

#include "engine/control_plane.hpp"
#include "text_matchers.hpp"
#include "transport/loopback_fabric.hpp"

namespace ciranda {
namespace {

using std::chrono::seconds;

const TimePoint kStart = std::chrono::steady_clock::now();

TEST(LivenessProbe, BlamesNobodyWhomItHasNotAsked) {
  LoopbackFabric fabric(2);
  const auto mesh = fabric.take_mesh(0);
  ControlPlane control(*mesh);
  const Logger logger(0, LogLevel::kFatal);
  LivenessProbe probe({{1, "which coordinates"}}, {seconds(10), seconds(20)}, control, logger);
  probe.begin(kStart);
  EXPECT_EQ(probe.due(), kStart + seconds(10));
  EXPECT_TRUE(probe.look(kStart + seconds(60)).ok()) << "this rank itself was stopped meanwhile";
  EXPECT_EQ(probe.due(), kStart + seconds(70));
  EXPECT_TRUE(probe.look(kStart + seconds(69)).ok());
  const Status status = probe.look(kStart + seconds(70));
  EXPECT_EQ(status.kind(), ErrorKind::kTimeout);
  EXPECT_TRUE(contains(status.message(), "which coordinates, has not answered for 70 s"));
}

}  // namespace
}  // namespace ciranda
