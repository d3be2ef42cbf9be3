// The real mesh without bells, where peers that share memory wake each other through their control connections; by
// memory alone, without such connections; and with several data sockets.
#include "transport/socket_mesh.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "text_matchers.hpp"
#include "transport/event_loop.hpp"
#include "transport/mesh_conformance.hpp"
#include "transport/socket.hpp"

namespace ciranda {
namespace {

struct Ends {
  UniqueFd left;
  UniqueFd right;
};

Ends connect_two() {
  const auto listener = listen_on(SocketAddress::from_ip("127.0.0.1", 0).value(), {});
  auto left = start_connecting(SocketAddress::local_of(listener.value().get()));
  pollfd source{listener.value().get(), POLLIN, 0};
  EXPECT_EQ(poll(&source, 1, 5000), 1);
  return {std::move(left).value(),
          UniqueFd(accept4(listener.value().get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC))};
}

// The parts of ranks that share memory, without bells and connections.
std::vector<SocketMeshParts> parts_of(int n_ranks) {
  const SegmentLayout layout(n_ranks, 8192);
  auto segment = ShmSegment::create(layout.n_bytes());
  EXPECT_TRUE(segment.ok()) << segment.status().message();
  std::vector<int> members;
  std::vector<SocketMeshParts> parts;
  for (int rank = 0; rank < n_ranks; ++rank) {
    members.push_back(rank);
    parts.push_back({rank, {}, Bell::create().value(), {}});
    for (int peer = 0; peer < n_ranks; ++peer) {
      SocketMeshPeer each;
      each.info = {peer, 1, "host", "", true};
      parts.back().peers.push_back(std::move(each));
    }
  }
  for (SocketMeshParts& each : parts) {
    auto mine = ShmSegment::open(segment.value().path(), layout.n_bytes());
    each.shared.emplace(SharedMemory{std::move(mine).value(), layout, members});
  }
  return parts;
}

Meshes make_meshes(std::vector<SocketMeshParts> parts) {
  Meshes meshes;
  for (SocketMeshParts& each : parts) meshes.push_back(make_socket_mesh(std::move(each)).value());
  return meshes;
}

Meshes make_without_bells(int n_ranks) {
  std::vector<SocketMeshParts> parts = parts_of(n_ranks);
  for (std::size_t left = 0; left < parts.size(); ++left) {
    for (std::size_t right = left + 1; right < parts.size(); ++right) {
      Ends ends = connect_two();
      parts[left].peers[right].control.fd = std::move(ends.left);
      parts[right].peers[left].control.fd = std::move(ends.right);
    }
  }
  return make_meshes(std::move(parts));
}

std::vector<SocketMeshParts> parts_by_memory_alone(int n_ranks) {
  std::vector<SocketMeshParts> parts = parts_of(n_ranks);
  for (SocketMeshParts& mine : parts) {
    for (SocketMeshParts& other : parts) {
      other.peers[static_cast<std::size_t>(mine.rank)].bell = BellPlace{getpid(), mine.bell.fd()};
    }
  }
  return parts;
}

Meshes make_by_memory_alone(int n_ranks) { return make_meshes(parts_by_memory_alone(n_ranks)); }

// Gives a mesh what the test says.
class PlayedConnections final : public LateConnections {
 public:
  struct Script {
    bool connects = true;
    std::vector<int> asked;
    std::vector<Use> uses;
    std::vector<int> forgotten;
    std::vector<Outcome> outcomes;
  };
  explicit PlayedConnections(Script& script) : script_(script) {}

  bool connect(Use use, int peer) override {
    script_.uses.push_back(use);
    script_.asked.push_back(peer);
    return script_.connects;
  }
  void forget(int peer) override { script_.forgotten.push_back(peer); }
  std::vector<Outcome> poll() override { return std::exchange(script_.outcomes, {}); }
  bool is_connecting() const override { return true; }
  int fd() const override { return loop_.fd(); }

 private:
  Script& script_;
  EventLoop loop_ = EventLoop::create().value();
};

std::unique_ptr<Mesh> make_rank_with(UniqueFd control, int rank, PlayedConnections::Script& script) {
  std::vector<SocketMeshPeer> peers(2);
  peers[static_cast<std::size_t>(1 - rank)].control.fd = std::move(control);
  for (int peer = 0; peer < 2; ++peer) {
    peers[static_cast<std::size_t>(peer)].info = {peer, 1, "host", "10.0.0." + std::to_string(peer) + ":1",
                                                  peer == rank};
  }
  SocketMeshParts parts{rank, std::move(peers), Bell::create().value(), {}};
  parts.late_connections = std::make_unique<PlayedConnections>(script);
  return make_socket_mesh(std::move(parts)).value();
}

// A rank with a control connection to another, whose end is `far`, and no data connection.
std::unique_ptr<Mesh> make_rank(int rank, PlayedConnections::Script& script, UniqueFd& far) {
  Ends control = connect_two();
  far = std::move(control.right);
  return make_rank_with(std::move(control.left), rank, script);
}

Meshes make_two_to_be_connected(std::array<PlayedConnections::Script, 2>& scripts) {
  Ends control = connect_two();
  Meshes meshes;
  meshes.push_back(make_rank_with(std::move(control.left), 0, scripts[0]));
  meshes.push_back(make_rank_with(std::move(control.right), 1, scripts[1]));
  return meshes;
}

TEST(SocketMesh, ConnectsForDataAtItsFirstUse) {
  PlayedConnections::Script script;
  UniqueFd far;
  const auto mesh = make_rank(1, script, far);
  const std::array<std::byte, 8> bytes{};
  mesh->poll_events();
  EXPECT_TRUE(script.asked.empty());
  EXPECT_EQ(mesh->data(0).write_some(bytes), 0U);
  std::array<std::byte, 8> heard{};
  EXPECT_EQ(mesh->data(0).read_some(heard), 0U);
  EXPECT_EQ(script.asked, std::vector{0});
  EXPECT_EQ(mesh->data(0).state(), ChannelState::kOpen);
  Ends data = connect_two();
  script.outcomes.resize(1);
  script.outcomes[0].sockets.push_back({std::move(data.left), {}});
  EXPECT_TRUE(sleep_until(*mesh, [&] { return mesh->data(0).write_some(bytes) == bytes.size(); }));
  std::array<char, 64> record{};
  EXPECT_GT(recv(data.right.get(), record.data(), record.size(), 0), 8);
}

// No event tells of it: it came while the ranks were joining.
TEST(SocketMesh, HasFromTheStartWhatWasConnectedBefore) {
  PlayedConnections::Script script;
  Ends data = connect_two();
  script.outcomes.resize(1);
  script.outcomes[0].sockets.push_back({std::move(data.left), {}});
  UniqueFd far;
  const auto mesh = make_rank(1, script, far);
  const std::array<std::byte, 8> bytes{};
  EXPECT_EQ(mesh->data(0).write_some(bytes), bytes.size());
  EXPECT_TRUE(script.asked.empty());
}

// Its connection is ready after it has left: what it had sent before is read.
TEST(SocketMesh, ReadsTheDataOfAPeerThatLeftWhileItsConnectionWasMade) {
  std::array<PlayedConnections::Script, 2> scripts;
  Meshes meshes = make_two_to_be_connected(scripts);
  std::array<std::byte, 8> bytes{};
  bytes.fill(std::byte{3});
  EXPECT_EQ(meshes[1]->data(0).read_some(bytes), 0U);
  Ends data = connect_two();
  scripts[0].outcomes.push_back({LateConnections::Use::kData, 1, {}, {}});
  scripts[0].outcomes[0].sockets.push_back({std::move(data.left), {}});
  EXPECT_TRUE(sleep_until(*meshes[0], [&] { return meshes[0]->data(1).write_some(bytes) == bytes.size(); }));
  meshes[0].reset();
  EXPECT_TRUE(sleep_until(*meshes[1], [&] { return meshes[1]->closed_peers() == std::vector{0}; }));
  scripts[1].outcomes.push_back({LateConnections::Use::kData, 0, {}, {}});
  scripts[1].outcomes[0].sockets.push_back({std::move(data.right), {}});
  std::array<std::byte, 8> heard{};
  EXPECT_TRUE(sleep_until(*meshes[1], [&] { return meshes[1]->data(0).read_some(heard) == heard.size(); }));
  EXPECT_EQ(heard, bytes);
  EXPECT_EQ(meshes[1]->data(0).state(), ChannelState::kClosed);
  EXPECT_EQ(meshes[1]->why_closed(0), "");
}

// Two ranks of which the higher can connect.
TEST(SocketMesh, TheHigherRankIsAskedToConnect) {
  std::array<PlayedConnections::Script, 2> scripts;
  scripts[0].connects = false;
  Meshes meshes = make_two_to_be_connected(scripts);
  std::array<std::byte, 8> bytes{};
  EXPECT_EQ(meshes[0]->data(1).write_some(bytes), 0U);
  EXPECT_TRUE(sleep_until(*meshes[1], [&] {
    EXPECT_EQ(meshes[1]->control(0).read_some(bytes), 0U);
    return !scripts[1].asked.empty();
  }));
  EXPECT_EQ(scripts[1].asked, std::vector{0});
  EXPECT_EQ(meshes[0]->data(1).write_some(bytes), 0U);
  EXPECT_EQ(scripts[0].asked, std::vector{1});
  EXPECT_EQ(meshes[0]->control(1).write_some(bytes), bytes.size());
  EXPECT_TRUE(sleep_until(*meshes[1], [&] { return meshes[1]->control(0).read_some(bytes) == bytes.size(); }));
  EXPECT_EQ(scripts[1].asked, std::vector{0});
}

// The lower rank is the one that asks: what the higher one asks it for is not done.
TEST(SocketMesh, TheLowerRankIsNotAskedInVain) {
  std::array<PlayedConnections::Script, 2> scripts;
  scripts[1].connects = false;
  Meshes meshes = make_two_to_be_connected(scripts);
  std::array<std::byte, 8> bytes{};
  EXPECT_EQ(meshes[1]->data(0).write_some(bytes), 0U);
  EXPECT_EQ(meshes[1]->control(0).write_some(bytes), bytes.size());
  EXPECT_TRUE(sleep_until(*meshes[0], [&] { return meshes[0]->control(1).read_some(bytes) == bytes.size(); }));
  EXPECT_TRUE(scripts[0].asked.empty());
}

TEST(SocketMesh, APeerThatCannotBeConnectedToIsLostAndBothAreNamed) {
  PlayedConnections::Script script;
  UniqueFd far;
  const auto mesh = make_rank(1, script, far);
  std::array<std::byte, 8> heard{};
  EXPECT_EQ(mesh->data(0).read_some(heard), 0U);
  EXPECT_EQ(script.asked, std::vector{0});
  script.outcomes.push_back({LateConnections::Use::kData, 0, {}, "10.0.0.0:1 answers nothing"});
  EXPECT_TRUE(sleep_until(*mesh, [&] { return mesh->closed_peers() == std::vector{0}; }));
  EXPECT_EQ(mesh->why_closed(0),
            " cannot be connected to for its data, from rank 1 (host host, pid 1), 10.0.0.1:1: 10.0.0.0:1 answers "
            "nothing. Where hosts have several networks, CIRANDA_INTERFACE names the one to use.");
  const std::array<std::byte, 8> bytes{};
  EXPECT_EQ(mesh->control(0).write_some(bytes), 8U);  // it is told why
  EXPECT_EQ(mesh->data(0).write_some(bytes), 0U);
  EXPECT_EQ(mesh->data(0).state(), ChannelState::kClosed);
}

TEST(SocketMesh, APeerThatIsGoneIsNotConnectedTo) {
  PlayedConnections::Script script;
  UniqueFd far;
  const auto mesh = make_rank(1, script, far);
  far.reset();
  EXPECT_TRUE(sleep_until(*mesh, [&] { return !mesh->closed_peers().empty(); }));
  EXPECT_EQ(script.forgotten, std::vector{0});
  std::array<std::byte, 8> heard{};
  EXPECT_EQ(mesh->data(0).read_some(heard), 0U);
  EXPECT_EQ(mesh->data(0).state(), ChannelState::kClosed);
  EXPECT_TRUE(script.asked.empty());
}

// Two ranks, of so many, with so many data sockets, and a second descriptor of rank 0's last one.
std::pair<Meshes, UniqueFd> make_two_by_sockets(int n_sockets, std::chrono::milliseconds link_timeout = kLinkTimeout,
                                                int n_ranks = 2) {
  std::array<std::vector<SocketMeshPeer>, 2> peers;
  for (std::vector<SocketMeshPeer>& each : peers) each.resize(static_cast<std::size_t>(n_ranks));
  Ends control = connect_two();
  peers[0][1].control.fd = std::move(control.left);
  peers[1][0].control.fd = std::move(control.right);
  for (int i = 0; i < n_sockets; ++i) {
    Ends data = connect_two();
    peers[0][1].data.push_back({std::move(data.left), {}});
    peers[1][0].data.push_back({std::move(data.right), {}});
  }
  UniqueFd last(dup(peers[0][1].data.back().fd.get()));
  Meshes meshes;
  for (int rank = 0; rank < 2; ++rank) {
    auto& mine = peers[static_cast<std::size_t>(rank)];
    for (int peer = 0; peer < n_ranks; ++peer)
      mine[static_cast<std::size_t>(peer)].info = {peer, 1, "host", "", peer == rank};
    SocketMeshParts parts{rank, std::move(mine), Bell::create().value(), {}};
    parts.link_timeout = link_timeout;
    meshes.push_back(make_socket_mesh(std::move(parts)).value());
  }
  return {std::move(meshes), std::move(last)};
}

TEST(SocketMesh, ThePeerIsLostWithAnyOfItsDataSockets) {
  for (const int n_sockets : {1, 2, 16}) {
    auto [meshes, last] = make_two_by_sockets(n_sockets);
    const sockaddr nobody{AF_UNSPEC, {}};
    ASSERT_EQ(connect(last.get(), &nobody, sizeof(nobody)), 0);  // resets the connection
    for (const auto& mesh : meshes) {
      EXPECT_TRUE(sleep_until(*mesh, [&mesh = mesh] { return mesh->closed_peers().size() == 1; }));
      EXPECT_EQ(mesh->data(1 - mesh->rank()).state(), ChannelState::kClosed);
    }
  }
}

// They take another way, and may be late.
TEST(SocketMesh, TheLastWordsOfAPeerWhoseDataHasEndedAreHeard) {
  auto [meshes, last] = make_two_by_sockets(1);
  const sockaddr nobody{AF_UNSPEC, {}};
  ASSERT_EQ(connect(last.get(), &nobody, sizeof(nobody)), 0);
  const auto is_data_closed = [&meshes = meshes] { return meshes[1]->data(0).state() == ChannelState::kClosed; };
  EXPECT_TRUE(sleep_until(*meshes[1], is_data_closed));
  EXPECT_TRUE(meshes[1]->closed_peers().empty());
  std::array<std::byte, 3> words{};
  ASSERT_EQ(meshes[0]->control(1).write_some(words), words.size());
  meshes[0].reset();
  std::size_t n_heard = 0;
  EXPECT_TRUE(sleep_until(*meshes[1], [&meshes = meshes, &words, &n_heard] {
    n_heard += meshes[1]->control(0).read_some(words);
    return !meshes[1]->closed_peers().empty();
  }));
  n_heard += meshes[1]->control(0).read_some(words);
  EXPECT_EQ(n_heard, words.size());
}

TEST(SocketMesh, APeerWhoseDataIsChangedOnItsWayIsLostAndItIsSaidWhy) {
  auto [meshes, last] = make_two_by_sockets(1);
  EXPECT_EQ(meshes[1]->why_closed(0), "");
  const std::array<char, 64> noise{1, 2, 3};
  ASSERT_EQ(send(last.get(), noise.data(), noise.size(), 0), static_cast<ssize_t>(noise.size()));
  std::array<std::byte, 64> heard{};
  EXPECT_TRUE(sleep_until(*meshes[1], [&meshes = meshes, &heard] {
    EXPECT_EQ(meshes[1]->data(0).read_some(heard), 0U);
    return !meshes[1]->closed_peers().empty();
  }));
  EXPECT_TRUE(contains(meshes[1]->why_closed(0),
                       " is lost: what it sent to rank 1 (host host, pid 1) was changed on its way. Record 0 on data "
                       "connection 0 is not as it was sealed"));
  EXPECT_EQ(meshes[1]->control(0).write_some(std::span(heard).first(3)), 3U);  // it is told why
}

TEST(SocketMesh, APeerWhoseDataIsCutOffIsLost) {
  auto [meshes, last] = make_two_by_sockets(1);
  ASSERT_EQ(shutdown(last.get(), SHUT_WR), 0);
  std::array<std::byte, 64> heard{};
  EXPECT_TRUE(sleep_until(*meshes[1], [&meshes = meshes, &heard] {
    EXPECT_EQ(meshes[1]->data(0).read_some(heard), 0U);
    return !meshes[1]->closed_peers().empty();
  }));
}

// As one does that leaves with an error while data is under way: it says so first. Of more than two ranks, only the
// system tells which sockets have something to read.
TEST(SocketMesh, WhatAPeerSaidBeforeItsDataWasCutOffIsRead) {
  constexpr int kRanks = 4;
  auto [meshes, last] = make_two_by_sockets(1, kLinkTimeout, kRanks);
  std::array<std::byte, 64> heard{};
  EXPECT_EQ(meshes[1]->control(0).read_some(heard), 0U);
  EXPECT_EQ(meshes[0]->control(1).write_some(std::span(heard).first(3)), 3U);
  ASSERT_EQ(shutdown(last.get(), SHUT_WR), 0);
  EXPECT_EQ(meshes[1]->data(0).read_some(heard), 0U);
  std::size_t n_heard = 0;
  EXPECT_TRUE(sleep_until(*meshes[1], [&meshes = meshes, &heard, &n_heard] {
    n_heard += meshes[1]->control(0).read_some(heard);
    return !meshes[1]->closed_peers().empty();
  }));
  EXPECT_EQ(n_heard, 3U);
}

// Of which the channel shows nothing.
TEST(SocketMesh, RanksThatAreAtRestBeat) {
  auto [meshes, last] = make_two_by_sockets(1, std::chrono::milliseconds(400));
  const auto n_heard = [&meshes = meshes] {
    std::array<std::byte, 64> heard{};
    for (const auto& mesh : meshes) {
      mesh->poll_events();
      EXPECT_EQ(mesh->control(1 - mesh->rank()).read_some(heard), 0U);
    }
    return meshes[1]->traffic(0).n_received;
  };
  const std::uint64_t n_first = n_heard();
  EXPECT_TRUE(sleep_until(*meshes[0], [&] { return n_heard() > n_first; }));
  const std::uint64_t n_second = n_heard();
  EXPECT_TRUE(sleep_until(*meshes[0], [&] { return n_heard() > n_second; }));
  EXPECT_TRUE(meshes[0]->closed_peers().empty() && meshes[1]->closed_peers().empty());
}

// Rank 2 could not make its mesh, when the others had theirs.
TEST(SocketMesh, ARankThatDoesNotComeIsSeenByThoseThatShareMemoryWithIt) {
  std::vector<SocketMeshParts> parts = parts_by_memory_alone(3);
  const SocketMeshParts last = std::move(parts.back());
  parts.pop_back();
  const Meshes meshes = make_meshes(std::move(parts));
  const std::vector bells{*last.peers[0].bell, *last.peers[1].bell};
  announce_end(*last.shared, 2, bells);
  for (const auto& mesh : meshes) {
    EXPECT_TRUE(sleep_until(*mesh, [&mesh] { return mesh->closed_peers() == std::vector{2}; }));
    EXPECT_EQ(mesh->control(2).state(), ChannelState::kClosed);
  }
}

TEST(SocketMesh, TheFirstToGoIsNamedFirst) {
  Meshes meshes = make_by_memory_alone(4);
  for (const std::size_t rank : {2U, 1U, 3U}) meshes[rank].reset();
  EXPECT_TRUE(sleep_until(*meshes[0], [&mesh = *meshes[0]] { return mesh.closed_peers().size() == 3; }));
  EXPECT_EQ(meshes[0]->closed_peers(), (std::vector{2, 1, 3}));
}

INSTANTIATE_TEST_SUITE_P(Socket, MeshConformance,
                         ::testing::Combine(::testing::Values(MeshKind{"without_bells", make_without_bells},
                                                              MeshKind{"by_memory_alone", make_by_memory_alone}),
                                            ::testing::Values(1, 2, 4, 7)),
                         MeshTestName());

}  // namespace
}  // namespace ciranda
