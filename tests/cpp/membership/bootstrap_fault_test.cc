// Ranks as processes, and what the others see when one of them dies.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <iostream>

#include "membership/bootstrap_messages.hpp"
#include "membership/host_identity.hpp"
#include "membership/store_client.hpp"
#include "membership/test_job.hpp"
#include "transport/text_matchers.hpp"

namespace ciranda {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using SteadyClock = std::chrono::steady_clock;

// Ranks 1.. of a job as child processes. A child joins, says so to rank 0, and then does what the test says until it is
// killed.
class ChildRanks {
 public:
  // `life` runs in the child once it has joined; the child ends when it returns.
  ChildRanks(TestJob& job, int size, const Tweak& tweak, const std::function<void(Mesh&)>& life) {
    for (int rank = 1; rank < size; ++rank) {
      const pid_t child = fork();
      if (child == 0) {
        BootstrapOptions options = job.options(rank);
        options.warn = [](const std::string&) {};
        tweak(options);
        auto mesh = join_circle(options);
        if (mesh.ok()) {
          const std::byte joined{1};
          mesh.value()->control(0).write_some({&joined, 1});
          mesh.value()->notify();
          life(*mesh.value());
        }
        _exit(mesh.ok() ? 0 : 1);
      }
      pids_.push_back(child);
    }
  }
  ~ChildRanks() {
    for (const pid_t pid : pids_) {
      ::kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }
  ChildRanks(const ChildRanks&) = delete;
  ChildRanks& operator=(const ChildRanks&) = delete;

  // Joining ends for each rank by itself: rank 0 may be through while others are still at it.
  void wait_until_all_joined(Mesh& mesh) const {
    for (int rank = 1; rank < mesh.size(); ++rank) {
      std::byte joined{};
      ASSERT_TRUE(sleep_until(mesh, [&] { return mesh.control(rank).read_some({&joined, 1}) == 1; }));
    }
  }

  pid_t pid(int rank) const { return pids_[static_cast<std::size_t>(rank - 1)]; }

 private:
  std::vector<pid_t> pids_;
};

void wait_for_ever(Mesh&) {
  for (;;) {
    pause();
  }
}

struct FaultCase {
  std::string name;
  Tweak tweak;
};

class Fault : public testing::TestWithParam<FaultCase> {};

INSTANTIATE_TEST_SUITE_P(
    Membership, Fault,
    testing::Values(FaultCase{"shared", [](BootstrapOptions&) {}},
                    FaultCase{"tcp", [](BootstrapOptions& options) { options.use_shared_memory = false; }}),
    [](const auto& each) { return each.param.name; });

TEST_P(Fault, AKilledRankIsNoticedWithinTwoTenthsOfASecond) {
  TestJob job(3);
  const ChildRanks children(job, 3, GetParam().tweak, wait_for_ever);
  BootstrapOptions options = job.options(0);
  GetParam().tweak(options);
  auto mesh = join_circle(options);
  ASSERT_TRUE(mesh.ok()) << mesh.status().message();
  children.wait_until_all_joined(*mesh.value());
  EXPECT_EQ(mesh.value()->peer(1).pid, children.pid(1));
  const auto begin = SteadyClock::now();
  ASSERT_EQ(::kill(children.pid(1), SIGKILL), 0);
  ASSERT_TRUE(sleep_until(*mesh.value(), [&] { return !mesh.value()->closed_peers().empty(); }));
  const auto elapsed = SteadyClock::now() - begin;
  std::cout << "noticed after " << std::chrono::duration_cast<milliseconds>(elapsed).count() << " ms\n";
  EXPECT_LT(elapsed, milliseconds(200));
  EXPECT_EQ(mesh.value()->closed_peers(), std::vector<int>{1});
  EXPECT_EQ(mesh.value()->control(1).state(), ChannelState::kClosed);
  EXPECT_EQ(mesh.value()->control(2).state(), ChannelState::kOpen);
}

TEST_P(Fault, AlsoWhenAChildOfTheDeadHoldsItsSockets) {
  TestJob job(2);
  std::array<int, 2> grandchild{};
  ASSERT_EQ(pipe(grandchild.data()), 0);
  const ChildRanks children(job, 2, GetParam().tweak, [&grandchild](Mesh& mesh) {
    const pid_t pid = fork();
    if (pid == 0) {
      wait_for_ever(mesh);
    }
    EXPECT_EQ(write(grandchild[1], &pid, sizeof(pid)), static_cast<ssize_t>(sizeof(pid)));
    wait_for_ever(mesh);
  });
  BootstrapOptions options = job.options(0);
  GetParam().tweak(options);
  auto mesh = join_circle(options);
  ASSERT_TRUE(mesh.ok()) << mesh.status().message();
  children.wait_until_all_joined(*mesh.value());
  pid_t holder = 0;
  ASSERT_EQ(read(grandchild[0], &holder, sizeof(holder)), static_cast<ssize_t>(sizeof(holder)));
  const auto begin = SteadyClock::now();
  ASSERT_EQ(::kill(children.pid(1), SIGKILL), 0);
  EXPECT_TRUE(sleep_until(*mesh.value(), [&] { return !mesh.value()->closed_peers().empty(); }));
  EXPECT_LT(SteadyClock::now() - begin, milliseconds(200));
  ::kill(holder, SIGKILL);
  close(grandchild[0]);
  close(grandchild[1]);
}

TEST_P(Fault, AStoppedRankIsNotTakenForDead) {
  TestJob job(2);
  const ChildRanks children(job, 2, GetParam().tweak, [](Mesh& mesh) {
    std::byte byte{};
    sleep_until(mesh, [&] { return mesh.control(0).read_some({&byte, 1}) == 1; });
    mesh.control(0).write_some({&byte, 1});
    mesh.notify();
    wait_for_ever(mesh);
  });
  BootstrapOptions options = job.options(0);
  GetParam().tweak(options);
  auto mesh = join_circle(options);
  ASSERT_TRUE(mesh.ok()) << mesh.status().message();
  children.wait_until_all_joined(*mesh.value());
  ASSERT_EQ(::kill(children.pid(1), SIGSTOP), 0);
  std::byte byte{5};
  ASSERT_EQ(mesh.value()->control(1).write_some({&byte, 1}), 1U);
  mesh.value()->notify();
  const auto until = SteadyClock::now() + milliseconds(300);
  while (SteadyClock::now() < until) {
    mesh.value()->sleep(milliseconds(20));
    mesh.value()->poll_events();
  }
  EXPECT_TRUE(mesh.value()->closed_peers().empty());
  ASSERT_EQ(::kill(children.pid(1), SIGCONT), 0);
  std::byte heard{};
  EXPECT_TRUE(sleep_until(*mesh.value(), [&] { return mesh.value()->control(1).read_some({&heard, 1}) == 1; }));
  EXPECT_EQ(heard, byte);
}

// Rank 1 dies between the exchange and the connections: its endpoint is known, its port is closed.
TEST(Membership, ARankThatDiesWhileTheOthersConnectIsNamed) {
  TestJob job(2);
  const pid_t dying = fork();
  if (dying == 0) {
    const Credentials credentials{job.secret(), "job", 0};
    const auto deadline = SteadyClock::now() + seconds(10);
    auto store = StoreClient::connect({job.store_address()}, credentials, 1, deadline);
    const Endpoint endpoint{static_cast<std::uint32_t>(getpid()),
                            0,
                            true,
                            65536,
                            "testhost",
                            "id",
                            identify_host("/dev/shm").machine,
                            "127.0.0.1:1"};
    (void)store.value().exchange("epoch 1", 2, encode(endpoint), deadline);
    _exit(0);
  }
  const auto begin = SteadyClock::now();
  const auto mesh = join_circle(job.options(0));
  waitpid(dying, nullptr, 0);
  EXPECT_EQ(mesh.status().kind(), ErrorKind::kRanksLost);
  EXPECT_TRUE(contains(mesh.status().message(), "rank 1 on testhost (127.0.0.1:1) ended while the job was starting"));
  EXPECT_LT(SteadyClock::now() - begin, seconds(5));
}

TEST(Membership, AKilledLeaderOfSharedMemoryLeavesNothingBehind) {
  TestJob job(2);
  {
    const pid_t leader = fork();
    if (leader == 0) {
      BootstrapOptions options = job.options(0);
      auto mesh = join_circle(options);
      if (mesh.ok()) {
        wait_for_ever(*mesh.value());
      }
      _exit(1);
    }
    auto mesh = join_circle(job.options(1));
    ASSERT_TRUE(mesh.ok()) << mesh.status().message();
    ASSERT_NE(mesh.value()->arena(), nullptr);
    ::kill(leader, SIGKILL);
    waitpid(leader, nullptr, 0);
    EXPECT_TRUE(sleep_until(*mesh.value(), [&] { return !mesh.value()->closed_peers().empty(); }));
    mesh.value()->arena()->slot(0, 0)[0] = std::byte{1};  // the memory stays usable for the survivor
  }
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    EXPECT_FALSE(entry.path().filename().string().starts_with("ciranda-")) << entry.path();
  }
}

}  // namespace
}  // namespace ciranda
