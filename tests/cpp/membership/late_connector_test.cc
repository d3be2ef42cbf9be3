// Connections for data that are made when they are first used, and who comes to the listener that stays open for them.
#include "membership/late_connector.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "membership/outgoing_connection.hpp"
#include "membership/stranger.hpp"
#include "membership/test_job.hpp"
#include "text_matchers.hpp"
#include "transport/socket.hpp"
#include "transport/tcp_channel.hpp"

namespace ciranda {
namespace {

using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

constexpr int kRanks = 3;

struct ListeningRank {
  SocketAddress address;
  UniqueFd listener;
};

ListeningRank listen_as_rank() {
  ListeningRank made;
  made.listener = listen_on(SocketAddress::parse("127.0.0.1:0").value(), {}).value();
  made.address = SocketAddress::local_of(made.listener.get());
  return made;
}

// Its port stays taken: another process might listen there soon.
void stop_listening(ListeningRank& rank) {
  rank.listener.reset();
  rank.listener = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  ASSERT_EQ(setsockopt(rank.listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)), 0);
  ASSERT_EQ(bind(rank.listener.get(), rank.address.raw(), rank.address.n_bytes()), 0);
}

class LateConnectorTest : public ::testing::Test {
 protected:
  LateConnectorTest() {
    for (int rank = 0; rank < kRanks; ++rank) ranks_.push_back(listen_as_rank());
  }

  std::unique_ptr<LateConnector> make(int rank, LateConnectorOptions options = {}) {
    PairConnectorOptions connecting;
    connecting.credentials = {test_secret(), kTestJobName, 1};
    connecting.rank = rank;
    connecting.on_refused = [this](const std::string& what) { refused_.push_back(what); };
    connecting.on_retry = [this](const std::string& what) { retries_.push_back(what); };
    for (const ListeningRank& each : ranks_) connecting.peers.push_back({{each.address}, each.address.to_string(), -1});
    std::vector<UniqueFd> listeners;
    listeners.push_back(std::move(ranks_[static_cast<std::size_t>(rank)].listener));
    auto connector = PairConnector::create(std::move(listeners), std::move(connecting)).value();
    options.rank = rank;
    if (options.may_connect.empty()) options.may_connect.assign(kRanks, true);
    return std::make_unique<LateConnector>(std::move(connector), std::move(options));
  }

  // A member's connection, as an earlier or a faulty one might make it; empty if it is not kept.
  std::optional<KeyedSocket> come(LateConnector& to, const Purpose& purpose) {
    EventLoop loop = EventLoop::create().value();
    OutgoingConnection coming(loop, ranks_[purpose.to].address, {test_secret(), kTestJobName, 1}, purpose);
    while (coming.state() == OutgoingConnection::State::kTrying) {
      if (!loop.wait(5).empty()) coming.on_event();
      keep(to.poll());
    }
    if (coming.state() == OutgoingConnection::State::kFailed) return std::nullopt;
    return coming.take();
  }

  void keep(std::vector<LateConnections::Outcome> outcomes) {
    for (auto& each : outcomes) outcomes_.push_back(std::move(each));
  }
  // Polls these until so many outcomes are there.
  void poll_until(std::size_t n_outcomes, const std::vector<LateConnector*>& all) {
    const auto deadline = SteadyClock::now() + std::chrono::seconds(30);
    while (outcomes_.size() < n_outcomes && SteadyClock::now() < deadline) {
      for (LateConnector* each : all) keep(each->poll());
      poll(nullptr, 0, 1);
    }
    ASSERT_EQ(outcomes_.size(), n_outcomes);
  }

  // What seems to be an answer of rank 0 to whoever has connected: by another secret.
  void answer_wrongly() {
    const UniqueFd taken(accept4(ranks_[0].listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::array<char, Handshake::kChallengeBytes> answer{"CIRANDA\x01"};
    EXPECT_EQ(send(taken.get(), answer.data(), answer.size(), MSG_NOSIGNAL), static_cast<ssize_t>(answer.size()));
    std::array<char, Handshake::kMostBytes> heard;
    while (recv(taken.get(), heard.data(), heard.size(), MSG_DONTWAIT) > 0) {  // else its end takes the answer along
    }
  }
  // Lets rank 0 answer wrongly until this is so.
  void answer_wrongly_until(LateConnector& rank_1, const std::function<bool()>& is_over) {
    const auto deadline = SteadyClock::now() + std::chrono::seconds(30);
    pollfd source{ranks_[0].listener.get(), POLLIN, 0};
    while (!is_over() && SteadyClock::now() < deadline) {
      keep(rank_1.poll());
      if (::poll(&source, 1, 1) == 1) answer_wrongly();
    }
    ASSERT_TRUE(is_over());
  }

  std::vector<ListeningRank> ranks_;
  std::vector<std::string> refused_;
  std::vector<std::string> retries_;
  std::vector<LateConnections::Outcome> outcomes_;
};

TEST_F(LateConnectorTest, TheHigherRankConnects) {
  LateConnectorOptions options;
  options.n_sockets = 3;
  const auto first = make(0, options);
  const auto second = make(1, options);
  EXPECT_FALSE(first->connect(LateConnections::Use::kData, 1));
  EXPECT_FALSE(first->is_connecting());
  EXPECT_TRUE(second->connect(LateConnections::Use::kData, 0));
  EXPECT_TRUE(second->connect(LateConnections::Use::kData, 0));
  EXPECT_TRUE(second->is_connecting());
  poll_until(2, {first.get(), second.get()});
  EXPECT_FALSE(second->is_connecting());
  EXPECT_EQ(outcomes_[0].peer + outcomes_[1].peer, 1);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(outcomes_[0].sockets[i].keys.outgoing, outcomes_[1].sockets[i].keys.incoming);
    const char byte = 7;
    ASSERT_EQ(send(outcomes_[0].sockets[i].fd.get(), &byte, 1, 0), 1);
    char heard = 0;
    pollfd source{outcomes_[1].sockets[i].fd.get(), POLLIN, 0};
    ASSERT_EQ(::poll(&source, 1, 5000), 1);
    EXPECT_EQ(recv(outcomes_[1].sockets[i].fd.get(), &heard, 1, 0), 1);
  }
  keep(first->poll());
  EXPECT_EQ(outcomes_.size(), 2U);
}

bool is_ended(const KeyedSocket& socket) {
  pollfd source{socket.fd.get(), POLLIN, 0};
  char byte = 0;
  return poll(&source, 1, 5000) == 1 && recv(socket.fd.get(), &byte, 1, 0) <= 0;
}

// A member, too, gets only what the two may have, and that once.
TEST_F(LateConnectorTest, OnlyWhatThePairMayHaveIsKept) {
  LateConnectorOptions options;
  options.may_connect = {false, true, false};
  const auto rank_0 = make(0, options);
  const auto purpose = [](Role role, std::uint32_t from, std::uint8_t index) {
    return Purpose{role, from, 0, kRanks, index};
  };
  for (const Purpose& wrong : {purpose(Role::kControl, 1, 0), purpose(Role::kData, 1, 1), purpose(Role::kData, 2, 0),
                               purpose(Role::kData, 0, 0)}) {
    const auto ended = come(*rank_0, wrong);
    ASSERT_TRUE(ended.has_value());
    EXPECT_TRUE(is_ended(*ended));
  }
  EXPECT_TRUE(outcomes_.empty());
  const auto kept = come(*rank_0, purpose(Role::kData, 1, 0));
  poll_until(1, {rank_0.get()});
  const auto second = come(*rank_0, purpose(Role::kData, 1, 0));
  EXPECT_TRUE(is_ended(*second));
  EXPECT_EQ(outcomes_.size(), 1U);
}

TEST_F(LateConnectorTest, APairWithoutControlIsConnectedForThatBeforeItsData) {
  using Use = LateConnections::Use;
  LateConnectorOptions options;
  options.lacks_control = {true, true, false};
  const auto rank_0 = make(0, options);
  const auto rank_1 = make(1, options);
  EXPECT_TRUE(is_ended(*come(*rank_0, {Role::kData, 1, 0, kRanks, 0})));
  EXPECT_TRUE(is_ended(*come(*rank_0, {Role::kControl, 2, 0, kRanks, 0})));
  EXPECT_TRUE(is_ended(*come(*rank_0, {Role::kControl, 1, 0, kRanks, 1})));
  EXPECT_FALSE(rank_0->connect(Use::kControl, 1));
  for (const Use use : {Use::kControl, Use::kData}) {
    outcomes_.clear();
    EXPECT_TRUE(rank_1->connect(use, 0));
    poll_until(2, {rank_0.get(), rank_1.get()});
    for (const auto& each : outcomes_) {
      EXPECT_EQ(each.use, use);
      EXPECT_EQ(each.sockets.size(), 1U) << each.why_not;
    }
  }
  EXPECT_TRUE(is_ended(*come(*rank_0, {Role::kControl, 1, 0, kRanks, 0})));
}

TEST_F(LateConnectorTest, WhoeverLeavesIsForgotten) {
  const auto rank_1 = make(1);
  EXPECT_TRUE(rank_1->connect(LateConnections::Use::kData, 0));
  rank_1->forget(0);
  EXPECT_FALSE(rank_1->is_connecting());
  stop_listening(ranks_[0]);
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(rank_1->poll().empty());
}

// It has admitted the other, sent all its data, and left, before the other looks again.
TEST_F(LateConnectorTest, WhoeverLeavesAfterItHasAdmittedIsStillConnected) {
  LateConnectorOptions options;
  options.n_sockets = 2;
  auto rank_0 = make(0, options);
  const auto rank_1 = make(1, options);
  EXPECT_TRUE(rank_1->connect(LateConnections::Use::kData, 0));
  poll_until(1, {rank_1.get(), rank_0.get()});
  ASSERT_EQ(outcomes_[0].peer, 1);
  const char byte = 7;
  for (const KeyedSocket& each : outcomes_[0].sockets) ASSERT_EQ(send(each.fd.get(), &byte, 1, 0), 1);
  outcomes_.clear();
  rank_0.reset();
  rank_1->forget(0);
  poll_until(1, {rank_1.get()});
  EXPECT_FALSE(rank_1->is_connecting());
  for (const KeyedSocket& each : outcomes_[0].sockets) {
    char heard = 0;
    EXPECT_EQ(recv(each.fd.get(), &heard, 1, 0), 1);
    EXPECT_EQ(heard, byte);
  }
}

TEST_F(LateConnectorTest, WhoeverLeavesBeforeItHasAdmittedIsForgotten) {
  const auto rank_1 = make(1);
  EXPECT_TRUE(rank_1->connect(LateConnections::Use::kData, 0));
  EXPECT_TRUE(rank_1->poll().empty());  // its system takes the connection
  rank_1->forget(0);
  stop_listening(ranks_[0]);
  const auto deadline = SteadyClock::now() + std::chrono::seconds(30);
  while (rank_1->is_connecting() && SteadyClock::now() < deadline) {
    EXPECT_TRUE(rank_1->poll().empty());
    poll(nullptr, 0, 1);
  }
  EXPECT_FALSE(rank_1->is_connecting());
}

TEST_F(LateConnectorTest, NobodyIsWaitedForWhereNobodyListens) {
  const auto rank_1 = make(1);
  stop_listening(ranks_[0]);
  EXPECT_TRUE(rank_1->connect(LateConnections::Use::kData, 0));
  poll_until(1, {rank_1.get()});
  EXPECT_TRUE(contains(outcomes_[0].why_not, ranks_[0].address.to_string() + " cannot be reached: "));
  EXPECT_TRUE(contains(outcomes_[0].why_not, "it has ended, or a firewall is between"));
  EXPECT_FALSE(rank_1->is_connecting());
}

// All ranks have proved themselves before: so what one seems to refuse was changed on its way.
TEST_F(LateConnectorTest, AMemberThatSeemsToRefuseIsAskedAgain) {
  const auto rank_1 = make(1);
  EXPECT_TRUE(rank_1->connect(LateConnections::Use::kData, 0));
  answer_wrongly_until(*rank_1, [this] { return !retries_.empty(); });
  EXPECT_TRUE(contains(retries_[0], "presented a different job secret"));
  ASSERT_TRUE(outcomes_.empty());
  const auto rank_0 = make(0);
  poll_until(2, {rank_0.get(), rank_1.get()});
  EXPECT_EQ(outcomes_[0].why_not + outcomes_[1].why_not, "");
}

TEST_F(LateConnectorTest, AMemberThatSeemsToRefuseForLongIsGivenUp) {
  const auto rank_1 = make(1);
  EXPECT_TRUE(rank_1->connect(LateConnections::Use::kData, 0));
  answer_wrongly_until(*rank_1, [this] { return !outcomes_.empty(); });
  EXPECT_FALSE(rank_1->is_connecting());
  EXPECT_TRUE(contains(outcomes_[0].why_not,
                       "presented a different job secret, which it did not when the job began: what the two send is "
                       "changed on its way, or another process has its port"));
}

// As one does that may open no more files.
TEST_F(LateConnectorTest, AnEndThatTakesNoneIsGivenUpAtTheLimit) {
  LateConnectorOptions options;
  options.limit = milliseconds(300);
  const auto rank_1 = make(1, options);
  EXPECT_TRUE(rank_1->connect(LateConnections::Use::kData, 0));
  const auto deadline = SteadyClock::now() + std::chrono::seconds(30);
  while (outcomes_.empty() && SteadyClock::now() < deadline) {
    UniqueFd ended(accept4(ranks_[0].listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::vector<std::byte> why = AcceptingHandshake::has_no_room();
    if (ended.valid()) (void)send(ended.get(), why.data(), why.size(), MSG_NOSIGNAL);
    close_gracefully(std::move(ended));
    keep(rank_1->poll());
    poll(nullptr, 0, 1);
  }
  ASSERT_EQ(outcomes_.size(), 1U);
  EXPECT_TRUE(contains(outcomes_[0].why_not, "could not be reached in"));
  EXPECT_TRUE(contains(outcomes_[0].why_not, "(CIRANDA_START_TIMEOUT): "));
  EXPECT_TRUE(contains(outcomes_[0].why_not, "may open no more files: raise the limit of that process (ulimit -n)"));
}

// It may be stopped: its system takes the connection, and it says nothing.
TEST_F(LateConnectorTest, AnEndThatIsConnectedAndSilentIsWaitedFor) {
  LateConnectorOptions options;
  options.limit = milliseconds(50);
  const auto rank_1 = make(1, options);
  EXPECT_TRUE(rank_1->connect(LateConnections::Use::kData, 0));
  const auto until = SteadyClock::now() + milliseconds(400);
  while (SteadyClock::now() < until) {
    keep(rank_1->poll());
    poll(nullptr, 0, 1);
  }
  EXPECT_TRUE(outcomes_.empty());
  const auto rank_0 = make(0);  // goes on
  poll_until(2, {rank_0.get(), rank_1.get()});
  EXPECT_EQ(outcomes_[0].why_not + outcomes_[1].why_not, "");
}

TEST_F(LateConnectorTest, ManyStrangersHoldUpNobodyAndLeaveNothing) {
  const auto rank_0 = make(0);
  const auto rank_1 = make(1);
  constexpr int kStrangers = 1000;
  std::vector<std::unique_ptr<Stranger>> all;
  for (int i = 0; i < kStrangers; ++i) {
    all.push_back(std::make_unique<Stranger>(ranks_[0].address.to_string()));
    if (i % 2 == 0) all.back()->say("GET / HTTP/1.1\r\nHost: example.org\r\n\r\n" + std::string(100, 'x'));
    if (all.size() > 200) all.erase(all.begin());
    if (i == kStrangers / 2) {
      EXPECT_TRUE(rank_1->connect(LateConnections::Use::kData, 0));
    }
    keep(rank_0->poll());
    keep(rank_1->poll());
  }
  poll_until(2, {rank_0.get(), rank_1.get()});
  EXPECT_EQ(outcomes_[0].why_not + outcomes_[1].why_not, "");
  EXPECT_GT(refused_.size(), 0U);
  EXPECT_LE(refused_.size(), 10U);
}

}  // namespace
}  // namespace ciranda
