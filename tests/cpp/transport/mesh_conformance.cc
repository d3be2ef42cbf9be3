#include "transport/mesh_conformance.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

namespace ciranda {
namespace {

TEST_P(MeshConformance, KnowsWhoIsWho) {
  ASSERT_EQ(meshes_.size(), static_cast<std::size_t>(n_));
  for (int rank = 0; rank < n_; ++rank) {
    Mesh& mesh = *meshes_[static_cast<std::size_t>(rank)];
    EXPECT_EQ(mesh.rank(), rank);
    EXPECT_EQ(mesh.size(), n_);
    for (int peer = 0; peer < n_; ++peer) {
      EXPECT_EQ(mesh.peer(peer).rank, peer);
      EXPECT_FALSE(mesh.peer(peer).host.empty());
      EXPECT_NE(mesh.peer(peer).pid, 0);
    }
    EXPECT_TRUE(mesh.closed_peers().empty());
    if (mesh.arena() != nullptr) {
      EXPECT_EQ(mesh.arena()->n_members(), n_);
      EXPECT_EQ(mesh.arena()->member(), rank);
    }
  }
}

// One stream of one rank: what is left to send and how much came, checked against what each sender must send.
struct Stream {
  static std::byte expected(int from, int to, bool control, std::size_t at) {
    const auto mixed = at * 2654435761U + static_cast<std::size_t>(from * 31 + to * 7 + (control ? 1 : 0));
    return static_cast<std::byte>(mixed >> 5);
  }
  int peer = 0;
  bool control = false;
  std::size_t n_sent = 0;
  std::size_t n_received = 0;
};

TEST_P(MeshConformance, AllPairsCarryBytesInOrder) {
  const std::size_t n_bytes = 600'000 / static_cast<std::size_t>(n_ * n_);
  run_ranks(meshes_, [n_bytes](Mesh& mesh) {
    std::mt19937 random(static_cast<std::uint32_t>(mesh.rank()));
    std::uniform_int_distribution<std::size_t> any_size(1, 40'000);
    std::vector<Stream> streams;
    for (int peer = 0; peer < mesh.size(); ++peer) {
      if (peer != mesh.rank()) {
        streams.push_back({peer, true});
        streams.push_back({peer, false});
      }
    }
    std::vector<std::byte> chunk(40'000);
    std::size_t n_wrong = 0;
    const auto turn = [&] {
      bool moved = true;
      while (moved) {
        moved = false;
        for (Stream& stream : streams) {
          Channel& channel = stream.control ? mesh.control(stream.peer) : mesh.data(stream.peer);
          const std::size_t n_try = std::min(any_size(random), n_bytes - stream.n_sent);
          for (std::size_t i = 0; i < n_try; ++i) {
            chunk[i] = Stream::expected(mesh.rank(), stream.peer, stream.control, stream.n_sent + i);
          }
          const std::size_t n_out = channel.write_some(std::span(chunk).first(n_try));
          stream.n_sent += n_out;
          const std::size_t n_in = channel.read_some(std::span(chunk).first(any_size(random)));
          for (std::size_t i = 0; i < n_in; ++i) {
            n_wrong += chunk[i] != Stream::expected(stream.peer, mesh.rank(), stream.control, stream.n_received + i);
          }
          stream.n_received += n_in;
          moved = moved || n_out + n_in != 0;
        }
        mesh.notify();
        mesh.poll_events();
      }
      return std::all_of(streams.begin(), streams.end(), [&mesh, n_bytes](const Stream& stream) {
        return stream.n_sent == n_bytes && stream.n_received == n_bytes && !mesh.data(stream.peer).has_unsent();
      });
    };
    EXPECT_TRUE(sleep_until(mesh, turn)) << "rank " << mesh.rank() << " hangs";
    EXPECT_EQ(n_wrong, 0U);
  });
}

TEST_P(MeshConformance, CountsWhatHasArrived) {
  static constexpr std::size_t kBytes = 200;        // any channel has room
  static constexpr std::size_t kMostBeside = 1024;  // of a handshake, and records
  run_ranks(meshes_, [](Mesh& mesh) {
    const std::vector<std::byte> bytes(kBytes);
    std::vector<std::byte> read(kBytes);
    for (int peer = 0; peer < mesh.size(); ++peer) {
      if (peer == mesh.rank()) continue;
      // The first use may have to wait for a connection.
      ASSERT_TRUE(sleep_until(mesh, [&] { return mesh.data(peer).write_some(bytes) == kBytes; }));
      mesh.notify();
      std::size_t n_read = 0;
      ASSERT_TRUE(sleep_until(mesh, [&] {
        n_read += mesh.data(peer).read_some(std::span(read).subspan(n_read));
        return n_read == kBytes;
      }));
      const auto has_arrived = [&] {
        const Traffic traffic = mesh.traffic(peer);
        return traffic.n_sent >= kBytes && traffic.n_received >= kBytes && traffic.n_queued == 0;
      };
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      while (!has_arrived() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
      EXPECT_TRUE(has_arrived());
      EXPECT_LT(mesh.traffic(peer).n_sent, kBytes + kMostBeside);
    }
  });
}

// A token goes round; whoever has it not sleeps. A wake that gets lost is a hang.
TEST_P(MeshConformance, NoWakeIsEverLost) {
  if (n_ == 1) {
    return;  // has nobody to wake
  }
  const int n_rounds = 10'000 / n_;
  run_ranks(meshes_, [n_rounds](Mesh& mesh) {
    const int next = (mesh.rank() + 1) % mesh.size();
    const int previous = (mesh.rank() + mesh.size() - 1) % mesh.size();
    std::byte token{7};
    for (int round = 0; round < n_rounds; ++round) {
      if (mesh.rank() != 0) {
        ASSERT_TRUE(sleep_until(mesh,
                                [&] {
                                  return mesh.control(previous).read_some({&token, 1}) == 1;
                                }))
            << "rank " << mesh.rank() << " was not woken in round " << round;
      }
      ASSERT_EQ(mesh.control(next).write_some({&token, 1}), 1U);
      mesh.notify();
      if (mesh.rank() == 0) {
        ASSERT_TRUE(sleep_until(mesh,
                                [&] {
                                  return mesh.control(previous).read_some({&token, 1}) == 1;
                                }))
            << "rank 0 was not woken in round " << round;
      }
    }
  });
}

TEST_P(MeshConformance, ArenaCountersWakeSleepers) {
  if (meshes_[0]->arena() == nullptr) {
    return;  // has no arena
  }
  run_ranks(meshes_, [](Mesh& mesh) {
    SharedArena& arena = *mesh.arena();
    using Counter = SharedArena::Counter;
    for (std::uint64_t k = 1; k <= 1000; ++k) {
      arena.slot(arena.member(), k)[0] = static_cast<std::byte>(k);
      arena.counter(arena.member(), Counter::kPacked).store(k, std::memory_order_release);
      mesh.notify();
      ASSERT_TRUE(sleep_until(mesh, [&] {
        for (int member = 0; member < arena.n_members(); ++member) {
          if (arena.counter(member, Counter::kPacked).load(std::memory_order_acquire) < k) {
            return false;
          }
        }
        return true;
      }));
      for (int member = 0; member < arena.n_members(); ++member) {
        ASSERT_EQ(arena.slot(member, k)[0], static_cast<std::byte>(k));
      }
      arena.counter(arena.member(), Counter::kConsumed).store(k, std::memory_order_release);
      mesh.notify();
      ASSERT_TRUE(sleep_until(mesh, [&] {
        for (int member = 0; member < arena.n_members(); ++member) {
          if (arena.counter(member, Counter::kConsumed).load(std::memory_order_acquire) < k) {
            return false;
          }
        }
        return true;
      }));
    }
  });
}

TEST_P(MeshConformance, LazyNewsWakesOnlyThoseWhoAwaitIt) {
  if (n_ == 1 || !meshes_[0]->peer(1).shares_memory) {
    return;  // nobody to wake, or a network that wakes in any case
  }
  constexpr auto kPatience = std::chrono::milliseconds(30);
  bool slept_on = false;
  for (int i = 0; i < 5 && !slept_on; ++i) {  // a sleep may end for no reason
    const auto begin = std::chrono::steady_clock::now();
    meshes_[1]->arm(Sleeper::kIdle);
    meshes_[0]->notify(Urgency::kLazy);
    meshes_[1]->sleep(kPatience);
    meshes_[1]->disarm();
    meshes_[1]->poll_events();
    slept_on = std::chrono::steady_clock::now() - begin >= kPatience;
  }
  EXPECT_TRUE(slept_on) << "woken for news that could wait";
  for (const auto& [sleeper, urgency] :
       {std::pair(Sleeper::kIdle, Urgency::kUrgent), std::pair(Sleeper::kAwaits, Urgency::kLazy)}) {
    meshes_[1]->arm(sleeper);
    meshes_[0]->notify(urgency);
    meshes_[1]->sleep(std::nullopt);
    meshes_[1]->disarm();
  }
}

// The last look at the channels comes before the news, poll_events() after: the sleep must not last.
TEST_P(MeshConformance, NewsThatPollingHasTakenInEndsTheSleep) {
  if (n_ == 1) {
    return;  // nobody has news
  }
  for (int i = 0; i < 10; ++i) {
    std::byte byte{};
    meshes_[1]->arm();
    ASSERT_EQ(meshes_[1]->control(0).read_some({&byte, 1}), 0U);
    ASSERT_EQ(meshes_[0]->control(1).write_some({&byte, 1}), 1U);
    meshes_[0]->notify();
    for (int turn = 0; turn < 1000; ++turn) {
      meshes_[1]->poll_events();
    }
    const auto begin = std::chrono::steady_clock::now();
    meshes_[1]->sleep(std::chrono::seconds(10));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
    meshes_[1]->disarm();
    ASSERT_TRUE(sleep_until(*meshes_[1], [&] { return meshes_[1]->control(0).read_some({&byte, 1}) == 1; }));
  }
}

TEST_P(MeshConformance, KickEndsASleepAlsoOneThatHasNotBegun) {
  Mesh& mesh = *meshes_[0];
  mesh.kick();
  mesh.arm();
  mesh.sleep(std::nullopt);
  mesh.disarm();
  std::atomic<int> n_done{0};
  std::thread kicker([&] {
    while (n_done.load() < 100) {
      mesh.kick();
      std::this_thread::yield();
    }
  });
  for (int i = 0; i < 100; ++i) {
    mesh.arm();
    mesh.sleep(std::nullopt);
    mesh.disarm();
    ++n_done;
  }
  kicker.join();
}

TEST_P(MeshConformance, NewsDoesNotEndTheSleepOfOneThatIsDisarmed) {
  if (n_ == 1) {
    return;  // nobody has news
  }
  constexpr auto kNap = std::chrono::milliseconds(5);
  meshes_[1]->arm();
  meshes_[1]->disarm();
  for (int turn = 0; turn < 1000; ++turn) {  // a new connection is news too
    meshes_[1]->poll_events();
  }
  const std::byte byte{1};
  ASSERT_EQ(meshes_[0]->control(1).write_some({&byte, 1}), 1U);
  meshes_[0]->notify();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 10; ++i) {  // some of them may end for no reason
    meshes_[1]->sleep(kNap);
  }
  EXPECT_GT(std::chrono::steady_clock::now() - begin, 5 * kNap);
  std::byte heard{};
  EXPECT_TRUE(sleep_until(*meshes_[1], [&] { return meshes_[1]->control(0).read_some({&heard, 1}) == 1; }));
}

TEST_P(MeshConformance, SleepEndsAtItsDeadline) {
  Mesh& mesh = *meshes_[0];
  const auto begin = std::chrono::steady_clock::now();
  mesh.arm();
  for (int i = 0; i < 10; ++i) {  // some of them may end for no reason
    mesh.sleep(std::chrono::milliseconds(1));
  }
  mesh.disarm();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST_P(MeshConformance, LeavingIsSeenByAllAfterTheLastWords) {
  const std::vector<std::byte> last_words(100, std::byte{9});
  for (int peer = 1; peer < n_; ++peer) {
    ASSERT_EQ(meshes_[0]->control(peer).write_some(last_words), last_words.size());
  }
  meshes_[0].reset();
  for (int rank = 1; rank < n_; ++rank) {
    Mesh& mesh = *meshes_[static_cast<std::size_t>(rank)];
    ASSERT_TRUE(sleep_until(mesh, [&] { return !mesh.closed_peers().empty(); })) << "rank " << rank;
    EXPECT_EQ(mesh.closed_peers(), std::vector<int>{0});
    std::vector<std::byte> heard(200);
    EXPECT_EQ(mesh.control(0).read_some(heard), last_words.size());
    EXPECT_EQ(mesh.control(0).read_some(heard), 0U);
    EXPECT_EQ(mesh.control(0).state(), ChannelState::kClosed);
    EXPECT_EQ(mesh.data(0).state(), ChannelState::kClosed);
    EXPECT_EQ(mesh.data(0).write_some(heard), 0U);
  }
  for (int rank = 1; rank < n_; ++rank) {
    for (int peer = 1; peer < n_; ++peer) {
      if (peer != rank) {
        EXPECT_EQ(meshes_[static_cast<std::size_t>(rank)]->control(peer).state(), ChannelState::kOpen);
      }
    }
  }
}

}  // namespace
}  // namespace ciranda
