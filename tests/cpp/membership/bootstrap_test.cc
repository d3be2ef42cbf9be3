#include "membership/bootstrap.hpp"

#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <iostream>

#include "membership/bootstrap_messages.hpp"
#include "membership/host_identity.hpp"
#include "membership/store_client.hpp"
#include "membership/stranger.hpp"
#include "membership/test_job.hpp"
#include "text_matchers.hpp"

namespace ciranda {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using SteadyClock = std::chrono::steady_clock;

// Every rank says hello to every other, and hears it.
void expect_all_talk(Meshes& meshes) {
  run_ranks(meshes, [](Mesh& mesh) {
    const std::byte hello{static_cast<unsigned char>(mesh.rank() + 1)};
    for (int peer = 0; peer < mesh.size(); ++peer) {
      if (peer != mesh.rank()) {
        EXPECT_EQ(mesh.control(peer).write_some({&hello, 1}), 1U);
        // The first use may have to wait for a connection.
        EXPECT_TRUE(sleep_until(mesh, [&] { return mesh.data(peer).write_some({&hello, 1}) == 1; }));
      }
    }
    mesh.notify();
    for (int peer = 0; peer < mesh.size(); ++peer) {
      std::byte heard{};
      if (peer != mesh.rank()) {
        EXPECT_TRUE(sleep_until(mesh, [&] { return mesh.control(peer).read_some({&heard, 1}) == 1; }));
        EXPECT_EQ(heard, std::byte{static_cast<unsigned char>(peer + 1)});
        EXPECT_TRUE(sleep_until(mesh, [&] { return mesh.data(peer).read_some({&heard, 1}) == 1; }));
      }
    }
  });
}

// So many ports that are free now, below those that the system gives to anyone.
PortRange free_range(int n_ports) {
  const SocketAddress loopback = SocketAddress::from_ip("127.0.0.1", 0).value();
  for (int low = 10'000 + getpid() % 10'000; low < 32'000; low += n_ports) {
    std::vector<UniqueFd> held;
    for (int port = low; port < low + n_ports; ++port) {
      const auto one = static_cast<std::uint16_t>(port);
      auto listener = listen_on(loopback, {one, one});
      if (listener.ok()) {
        held.push_back(std::move(listener).value());
      }
    }
    if (held.size() == static_cast<std::size_t>(n_ports)) {
      return {static_cast<std::uint16_t>(low), static_cast<std::uint16_t>(low + n_ports - 1)};
    }
  }
  ADD_FAILURE() << "no " << n_ports << " free ports";
  return {};
}

TEST(Bootstrap, IsRepeatableByEpoch) {
  TestJob job(3);
  for (std::uint64_t epoch = 1; epoch <= 5; ++epoch) {
    auto meshes = job.join_well([epoch](BootstrapOptions& options) { options.epoch = epoch; });
    ASSERT_EQ(meshes.size(), 3U);
    expect_all_talk(meshes);
  }
}

// With few, nobody notes who has written: each is looked at.
TEST(Bootstrap, OfManyRanksOfAHostThoseThatHaveWrittenAreKnown) {
  const auto few = TestJob(2).join_well();
  EXPECT_EQ(few[0]->take_senders(), nullptr);
  const auto meshes = TestJob(18).join_well();
  const std::byte hello{7};
  for (const std::size_t rank : {17U, 3U}) {
    EXPECT_TRUE(meshes[0]->take_senders()->empty());
    meshes[rank]->control(0).write_some({&hello, 1});
    EXPECT_EQ(*meshes[0]->take_senders(), std::vector{static_cast<int>(rank)});
  }
  EXPECT_TRUE(meshes[1]->take_senders()->empty());
}

// Of three hosts of two ranks.
Meshes join_on_three_hosts(TestJob& job) {
  return job.join_well(
      [](BootstrapOptions& options) { options.host = options.host_id = "host" + std::to_string(options.rank / 2); });
}

TEST(Bootstrap, BetweenHostsConnectsRelaysOnly) {
  TestJob job(6);
  const auto meshes = join_on_three_hosts(job);
  for (int rank = 0; rank < 6; ++rank) {
    for (int peer = 0; peer < rank; ++peer) {
      const bool is_one_host = peer / 2 == rank / 2;
      const bool is_relay = rank % 2 == 0 && peer == 0;
      EXPECT_EQ(meshes[static_cast<std::size_t>(rank)]->is_connected(peer), is_one_host || is_relay) << rank << peer;
      EXPECT_EQ(meshes[static_cast<std::size_t>(peer)]->is_connected(rank), is_one_host || is_relay) << rank << peer;
    }
  }
}

TEST(Bootstrap, ConnectsOthersWhenTheHigherUsesThem) {
  TestJob job(6);
  auto meshes = join_on_three_hosts(job);
  std::atomic<bool> is_done = false;
  run_ranks(meshes, [&is_done](Mesh& mesh) {
    const std::byte hello{7};
    std::byte heard{};
    if (mesh.rank() == 5) {
      EXPECT_TRUE(sleep_until(mesh, [&] { return mesh.data(1).write_some({&hello, 1}) == 1; }));
      EXPECT_EQ(mesh.late_peers(), std::vector{1});
      EXPECT_EQ(mesh.control(1).write_some({&hello, 1}), 1U);
      EXPECT_TRUE(sleep_until(mesh, [&] { return is_done.load(); }));
    } else if (mesh.rank() == 1) {
      mesh.connect(5);  // it is the other that connects
      EXPECT_TRUE(sleep_until(mesh, [&] { return mesh.control(5).read_some({&heard, 1}) == 1; }));
      EXPECT_EQ(mesh.late_peers(), std::vector{5});
      EXPECT_TRUE(sleep_until(mesh, [&] { return mesh.data(5).read_some({&heard, 1}) == 1; }));
      is_done = true;
    }
  });
}

// It asks for nothing of one that has left, and tells of no loss.
TEST(Bootstrap, ConnectsWithNobodyWhoHasLeft) {
  TestJob job(6);
  auto meshes = join_on_three_hosts(job);
  Mesh& mesh = *meshes[5];
  mesh.connect(2);
  mesh.forget(2);
  EXPECT_EQ(mesh.closed_peers(), std::vector{2});
  EXPECT_EQ(mesh.why_closed(2), "");
  mesh.connect(2);
  const std::byte byte{};
  for (int i = 0; i < 100; ++i) {
    mesh.poll_events();
    EXPECT_EQ(mesh.data(2).write_some({&byte, 1}), 0U);
    meshes[2]->poll_events();
  }
  EXPECT_FALSE(mesh.is_connected(2));
}

std::ptrdiff_t n_open_descriptors() {
  const auto entries = std::filesystem::directory_iterator("/proc/self/fd");
  return std::distance(begin(entries), end(entries));
}

TEST(Bootstrap, LeavesNoDescriptorBehind) {
  TestJob job(3);
  const auto before = n_open_descriptors();
  for (std::uint64_t epoch = 1; epoch <= 2; ++epoch) {
    job.join_well([epoch](BootstrapOptions& options) {
      options.epoch = epoch;
      options.use_shared_memory = epoch == 1;
    });
  }
  // The store lets go of its ends in its own time.
  const auto deadline = SteadyClock::now() + seconds(10);
  while (n_open_descriptors() != before && SteadyClock::now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_EQ(n_open_descriptors(), before);
}

TEST(Bootstrap, AWorldOfOneNeedsNeitherStoreNorSecret) {
  BootstrapOptions options;
  options.host = "alone";
  auto mesh = join_world(options);
  ASSERT_TRUE(mesh.ok());
  EXPECT_EQ(mesh.value()->size(), 1);
  EXPECT_EQ(mesh.value()->peer(0).host, "alone");
  ASSERT_NE(mesh.value()->arena(), nullptr);
  mesh.value()->arena()->slot(0, 1)[0] = std::byte{1};
}

TEST(Bootstrap, ImpossibleOptionsAreRefused) {
  BootstrapOptions options;
  for (const auto& [rank, size] : {std::pair(-1, 2), std::pair(2, 2), std::pair(0, 0), std::pair(0, -1)}) {
    options.rank = rank;
    options.size = size;
    EXPECT_EQ(join_world(options).status().kind(), ErrorKind::kInvalidArgument);
  }
  options.rank = 0;
  options.size = 1;
  options.slot_bytes = 100;
  EXPECT_EQ(join_world(options).status().kind(), ErrorKind::kInvalidArgument);
}

void expect_same_costs(const Meshes& meshes) {
  for (const auto& mesh : meshes) {
    for (int rank = 0; rank < mesh->size(); ++rank) EXPECT_EQ(mesh->peer(rank).costs, meshes[0]->peer(rank).costs);
  }
}

// Ranks that have a core each; this test is of no use on a machine with one.
TEST(Bootstrap, RanksMeasureTheirMemoryAndKnowWhatAllHaveMeasured) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "one core";
  TestJob job(2);
  // However long the other has no core.
  const auto meshes = job.join_well([](BootstrapOptions& options) { options.measuring_limit = seconds(60); });
  ASSERT_EQ(meshes.size(), 2U);
  expect_same_costs(meshes);
  for (int rank = 0; rank < 2; ++rank) {
    const Mesh& mesh = *meshes[static_cast<std::size_t>(rank)];
    const auto& pair = mesh.peer(1 - rank).pair;
    ASSERT_TRUE(pair.has_value());
    EXPECT_EQ(mesh.peer(rank).pair, std::nullopt);
    EXPECT_EQ(mesh.peer(rank).costs, host_costs_of(*pair));
  }
}

TEST(Bootstrap, WhatIsNotMeasuredInTimeStaysUnknown) {
  TestJob job(2);
  const auto meshes = job.join_well([](BootstrapOptions& options) { options.measuring_limit = milliseconds(0); });
  ASSERT_EQ(meshes.size(), 2U);
  expect_same_costs(meshes);
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(meshes[0]->peer(rank).costs, std::nullopt);
}

TEST(Bootstrap, CostsThatARankKnowsAreNotReplaced) {
  TestJob job(2);
  HostCosts tuned;
  tuned.copy_fs = 12'345;
  const auto meshes = job.join_well([&](BootstrapOptions& options) { options.costs = tuned; });
  ASSERT_EQ(meshes.size(), 2U);
  expect_same_costs(meshes);
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(meshes[0]->peer(rank).costs, tuned);
}

TEST(Bootstrap, NothingIsMeasuredWithoutAutotuningOrWhereCoresAreFew) {
  const int n_cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  for (const int size : {2, n_cores + 1}) {
    TestJob job(size);
    const auto meshes = job.join_well([size](BootstrapOptions& options) { options.autotune = size != 2; });
    ASSERT_EQ(meshes.size(), static_cast<std::size_t>(size));
    for (const auto& mesh : meshes) {
      for (int rank = 0; rank < size; ++rank) {
        EXPECT_EQ(mesh->peer(rank).pair, std::nullopt);
        EXPECT_EQ(mesh->peer(rank).costs, std::nullopt);
      }
    }
  }
}

TEST(Bootstrap, TwoJobsAtOnceDoNotMeet) {
  TestJob first(3, "first");
  TestJob second(3, "second");
  Meshes of_second;
  std::thread other([&] { of_second = second.join_well(); });
  auto of_first = first.join_well();
  other.join();
  expect_all_talk(of_first);
  expect_all_talk(of_second);
  EXPECT_TRUE(first.refused().empty());
  EXPECT_TRUE(second.refused().empty());
}

TEST(Bootstrap, TheOtherJobsStoreIsRefused) {
  TestJob first(1, "first");
  TestJob second(1, "second");
  BootstrapOptions lost = first.options(0);
  lost.size = 2;
  lost.store = {second.store_address()};
  const auto mesh = join_world(lost);
  EXPECT_EQ(mesh.status().kind(), ErrorKind::kInvalidArgument);
  EXPECT_TRUE(contains(mesh.status().message(), "rank 0 of 2 on testhost could not join"));
  EXPECT_TRUE(contains(mesh.status().message(), second.store_address() + " belongs to another job"));
}

TEST(Bootstrap, AWrongSecretIsSaidOnBothSides) {
  TestJob job(2);
  const auto joined = job.join([](BootstrapOptions& options) {
    options.start_timeout = milliseconds(500);
    if (options.rank == 1) {
      options.secret[5] ^= std::byte{1};
    }
  });
  EXPECT_EQ(joined[1].status().kind(), ErrorKind::kInvalidArgument);
  EXPECT_TRUE(contains(joined[1].status().message(), "presented a different job secret"));
  EXPECT_EQ(joined[0].status().kind(), ErrorKind::kTimeout);
  EXPECT_TRUE(contains(joined[0].status().message(), "rank 1 of 2 did not come within"));
  EXPECT_TRUE(contains(job.wait_for_refusal(), "presented a different job secret"));
}

TEST(Bootstrap, RanksStartedForDifferentSizesAllSaySo) {
  TestJob job(2);
  const auto joined = job.join([](BootstrapOptions& options) { options.size = options.rank == 1 ? 3 : 2; });
  for (const auto& each : joined) {
    EXPECT_EQ(each.status().kind(), ErrorKind::kMismatch);
    EXPECT_TRUE(contains(each.status().message(), "a job of 3 ranks, but this job has 2"));
  }
}

TEST(Bootstrap, ListensOnlyInThePortRangeAndNamesOneInUse) {
  TestJob job(3);
  const PortRange range = free_range(4);
  auto meshes = job.join_well([&range](BootstrapOptions& options) { options.port_range = range.to_string(); });
  ASSERT_EQ(meshes.size(), 3U);
  for (int rank = 0; rank < 3; ++rank) {
    const auto port = SocketAddress::parse(meshes[0]->peer(rank).address).value().port();
    EXPECT_GE(port, range.low);
    EXPECT_LE(port, range.high);
  }
  const PortRange taken = free_range(1);
  const auto held = listen_on(SocketAddress::from_ip("127.0.0.1", 0).value(), taken);
  const auto failed = job.join([&taken](BootstrapOptions& options) {
    options.epoch = 2;
    options.port_range = options.rank == 1 ? taken.to_string() : "";
  });
  EXPECT_EQ(failed[1].status().kind(), ErrorKind::kInvalidArgument);
  for (const auto& each : failed) {  // the others need not wait to learn it
    EXPECT_TRUE(contains(each.status().message(), "all ports of the range " + taken.to_string() + " are in use"));
  }
}

TEST(Bootstrap, UsesTheInterfaceThatIsAskedFor) {
  TestJob job(2);
  for (const char* interface : {"lo", "127.0.0.1"}) {
    auto meshes = job.join_well([&](BootstrapOptions& options) {
      options.interface = interface;
      options.epoch = interface[0] == 'l' ? 1 : 2;
    });
    ASSERT_EQ(meshes.size(), 2U);
    EXPECT_TRUE(contains(meshes[0]->peer(1).address, "127.0.0.1:"));
  }
  BootstrapOptions options = job.options(0);
  options.interface = "lo,nosuch0";
  const auto failed = join_world(options);
  EXPECT_EQ(failed.status().kind(), ErrorKind::kInvalidArgument);
  EXPECT_TRUE(contains(failed.status().message(), "no network interface 'nosuch0'"));
}

// Says to give up when asked for the third time.
std::function<bool()> gives_up() {
  return [n_asked = 0]() mutable { return ++n_asked == 3; };
}

void expect_interrupted(const BootstrapOptions& options) {
  const auto begin = SteadyClock::now();
  const auto mesh = join_world(options);
  EXPECT_EQ(mesh.status().kind(), ErrorKind::kAborted) << mesh.status().message();
  EXPECT_TRUE(contains(mesh.status().message(), "was interrupted while it waited"));
  EXPECT_LT(SteadyClock::now() - begin, options.start_timeout / 2);
}

TEST(Bootstrap, CanBeInterruptedWhileItLooksForTheStore) {
  const PortRange nobody = free_range(1);
  BootstrapOptions options = test_options(0, 2, "127.0.0.1:" + std::to_string(nobody.low));
  options.interrupted = gives_up();
  expect_interrupted(options);
}

TEST(Bootstrap, CanBeInterruptedWhileItWaitsForOthers) {
  TestJob job(2);
  BootstrapOptions options = job.options(0);
  options.interrupted = gives_up();
  expect_interrupted(options);
}

// A rank that tells the store where it is and that it lives in this process, if no other is given, but never connects.
// Then it may say why.
void play_a_rank_that_never_connects(TestJob& job, pid_t pid = getpid(), const std::string& why = "") {
  const Credentials credentials{test_secret(), kTestJobName, 0};
  const auto deadline = SteadyClock::now() + seconds(30);
  auto store = StoreClient::connect({job.store_address()}, credentials, 1, deadline);
  ASSERT_TRUE(store.ok()) << store.status().message();
  Endpoint endpoint;
  endpoint.pid = static_cast<std::uint32_t>(pid);
  endpoint.slot_bytes = kTestSlotBytes;
  endpoint.n_sockets = 1;
  endpoint.host = "elsewhere";
  endpoint.machine = identify_host("/dev/shm").machine;
  endpoint.addresses = {"127.0.0.1:1"};
  EXPECT_TRUE(store.value().exchange("epoch 1", 2, encode(endpoint), deadline).ok());
  if (!why.empty()) store.value().withdraw({"epoch 1"}, 2, why, deadline);
}

TEST(Bootstrap, CanBeInterruptedWhileItConnects) {
  TestJob job(2);
  std::atomic<bool> knows_the_other{false};
  std::thread other([&] {
    play_a_rank_that_never_connects(job);
    knows_the_other = true;
  });
  BootstrapOptions options = job.options(0);
  options.interrupted = [&, gives_up = gives_up()]() mutable { return knows_the_other && gives_up(); };
  expect_interrupted(options);
  other.join();
}

TEST(Bootstrap, ARankThatGivesUpIsNotWaitedFor) {
  TestJob job(2);
  std::thread other([&job] { play_a_rank_that_never_connects(job, getpid(), "it has no room"); });
  const auto mesh = join_world(job.options(0));
  other.join();
  EXPECT_EQ(mesh.status().kind(), ErrorKind::kRanksLost);
  EXPECT_TRUE(contains(mesh.status().message(), "rank 1 (127.0.0.1:")) << mesh.status().message();
  EXPECT_TRUE(contains(mesh.status().message(), ") could not join: it has no room")) << mesh.status().message();
}

// It has ended and is forgotten by the system before anybody learns of it: nothing is left that could be watched.
TEST(Bootstrap, ARankThatEndedBeforeTheOthersHeardOfItIsNamed) {
  TestJob job(2);
  pid_t ended = 0;
  std::string program = "/bin/true";
  std::array<char*, 2> argv{program.data(), nullptr};
  ASSERT_EQ(posix_spawn(&ended, program.c_str(), nullptr, nullptr, argv.data(), nullptr), 0);
  ASSERT_EQ(waitpid(ended, nullptr, 0), ended);
  std::thread other([&job, ended] { play_a_rank_that_never_connects(job, ended); });
  const auto mesh = join_world(job.options(0));
  other.join();
  EXPECT_EQ(mesh.status().kind(), ErrorKind::kRanksLost);
  EXPECT_TRUE(contains(mesh.status().message(), "rank 1 on elsewhere (127.0.0.1:1) ended while the job was starting"));
}

TEST(Bootstrap, StrangersOnThePeerPortsDoNoHarm) {
  TestJob job(3);
  const PortRange range = free_range(8);
  std::atomic<bool> stop{false};
  std::atomic<int> n_connections{0};
  std::vector<std::thread> strangers;
  for (int kind = 0; kind < 2; ++kind) {
    strangers.emplace_back([&, kind] {
      std::vector<UniqueFd> half_open;
      for (int port = range.low; !stop.load(); port = port == range.high ? range.low : port + 1) {
        SocketAddress to = SocketAddress::from_ip("127.0.0.1", static_cast<std::uint16_t>(port)).value();
        auto fd = start_connecting(to);
        pollfd source{fd.ok() ? fd.value().get() : -1, POLLOUT, 0};
        if (!fd.ok() || poll(&source, 1, 10) != 1 || !finish_connecting(fd.value().get(), to).ok()) {
          continue;
        }
        ++n_connections;
        constexpr std::string_view kHttp = "GET / HTTP/1.1\r\n\r\n";
        if (kind == 0) {
          (void)send_all(fd.value().get(), std::as_bytes(std::span(kHttp)), SteadyClock::now() + seconds(1));
        } else {
          half_open.push_back(std::move(fd).value());
          if (half_open.size() > 100) {
            half_open.clear();
          }
        }
      }
    });
  }
  for (std::uint64_t epoch = 1; epoch <= 20; ++epoch) {
    auto meshes = job.join_well([&](BootstrapOptions& options) {
      options.epoch = epoch;
      options.port_range = range.to_string();
      options.use_shared_memory = epoch % 2 == 0;
    });
    ASSERT_EQ(meshes.size(), 3U);
    expect_all_talk(meshes);
  }
  stop = true;
  for (std::thread& each : strangers) {
    each.join();
  }
  std::cout << n_connections.load() << " strangers came\n";
}

}  // namespace
}  // namespace ciranda
