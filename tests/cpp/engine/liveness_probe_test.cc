// LivenessProbe: a peer is silent if it does not answer a question; one that was asked nothing has nothing to say.
#include "engine/liveness_probe.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <utility>

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
  ControlPlane control(*mesh, true);
  const Logger logger(0, LogLevel::kFatal);
  LivenessProbe probe({{1, "which coordinates"}}, {seconds(10), seconds(20)}, control, logger);
  probe.begin(kStart);
  EXPECT_EQ(probe.due(), kStart + seconds(5));
  EXPECT_TRUE(probe.look(kStart + seconds(60)).ok()) << "this rank itself was stopped meanwhile";
  EXPECT_EQ(probe.due(), kStart + seconds(65));
  EXPECT_TRUE(probe.look(kStart + seconds(64)).ok());
  const Status status = probe.look(kStart + seconds(65));
  EXPECT_EQ(status.kind(), ErrorKind::kTimeout);
  EXPECT_TRUE(contains(status.message(), "which coordinates, has not answered for 65 s"));
}

TEST(LivenessProbe, BlamesASilentPeerAtTheLimit) {
  LoopbackFabric fabric(2);
  const auto mesh = fabric.take_mesh(0);
  ControlPlane control(*mesh, true);
  const Logger logger(0, LogLevel::kFatal);
  for (const auto& [warning, asks, limit] : {std::array{10, 5, 10}, {10, 20, 25}, {0, 5, 10}}) {
    LivenessProbe probe({{1, "which coordinates"}}, {seconds(warning), seconds(limit)}, control, logger);
    probe.begin(kStart);
    TimePoint asked{};
    TimePoint now = kStart;
    while (now < kStart + seconds(limit)) {
      ASSERT_TRUE(probe.look(now).ok()) << limit;
      asked = std::exchange(now, *probe.due());
    }
    EXPECT_EQ(asked, kStart + seconds(asks)) << limit;
    EXPECT_EQ(now, kStart + seconds(limit));
    EXPECT_EQ(probe.look(now).kind(), ErrorKind::kTimeout) << limit;
  }
}

}  // namespace
}  // namespace ciranda
