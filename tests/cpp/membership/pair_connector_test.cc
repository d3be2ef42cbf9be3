// What one rank hears of others while it waits for connections.
#include "membership/pair_connector.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include "membership/stranger.hpp"
#include "membership/test_job.hpp"
#include "text_matchers.hpp"
#include "transport/socket.hpp"

namespace ciranda {
namespace {

constexpr int kSize = 3;

struct Listening {
  std::vector<UniqueFd> listeners;
  SocketAddress address;
};

Listening listen_somewhere() {
  Listening made;
  made.listeners.push_back(listen_on(SocketAddress::parse("127.0.0.1:0").value(), {}).value());
  made.address = SocketAddress::local_of(made.listeners.front().get());
  return made;
}

// As a rank of another host is: its process cannot be watched.
std::unique_ptr<PairConnector> connector_of(int rank, Listening listening, const SocketAddress& of_rank_0,
                                            PairConnectorOptions options = {}) {
  options.credentials = {test_secret(), kTestJobName, 1};
  options.rank = rank;
  options.limit.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (int i = 0; i < kSize; ++i) {
    options.peers.push_back({{of_rank_0}, "rank " + std::to_string(i), -1});
  }
  return PairConnector::create(std::move(listening.listeners), std::move(options)).value();
}

// Rank 1, on yet another host, has given up before it came here, for it could not reach rank 2: only rank 2 can be
// named.
TEST(PairConnector, ARankThatConnectedAndEndedIsNamedWhileAnotherIsMissing) {
  Listening listening = listen_somewhere();
  const SocketAddress address = listening.address;
  const auto rank_0 = connector_of(0, std::move(listening), address);
  std::thread other([&] {
    const auto rank_2 = connector_of(2, listen_somewhere(), address);
    EXPECT_TRUE(rank_2->connect(Role::kControl, {0}).ok());
  });
  const Status status = rank_0->connect(Role::kControl, {1, 2});
  other.join();
  EXPECT_EQ(status.kind(), ErrorKind::kRanksLost) << status.message();
  EXPECT_TRUE(contains(status.message(), "rank 2 ended while the job was starting"));
}

// While it waits for rank 1, which never comes.
TEST(PairConnector, AStrangerThatSaysNothingIsTurnedAwayInTime) {
  Listening listening = listen_somewhere();
  const SocketAddress address = listening.address;
  std::promise<std::string> refused;
  std::atomic<bool> was_turned_away{false};
  PairConnectorOptions options;
  options.handshake_limit = std::chrono::milliseconds(50);
  options.on_refused = [&refused](const std::string& what) { refused.set_value(what); };
  options.limit.interrupted = [&was_turned_away] { return was_turned_away.load(); };
  const auto rank_0 = connector_of(0, std::move(listening), address, std::move(options));
  std::thread stranger([&] {
    Stranger silent(address.to_string());
    EXPECT_EQ(silent.bytes_until_closed(std::chrono::seconds(15)), 0);
    was_turned_away = true;
  });
  EXPECT_FALSE(rank_0->connect(Role::kControl, {1}).ok());
  stranger.join();
  auto why = refused.get_future();
  ASSERT_EQ(why.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  EXPECT_TRUE(contains(why.get(), "did not prove in time"));
}

}  // namespace
}  // namespace ciranda
