// Acceptor and OutgoingConnection: that each connection is proved anew, and what becomes of those that prove nothing.
#include "membership/acceptor.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "membership/outgoing_connection.hpp"
#include "membership/stranger.hpp"
#include "membership/test_job.hpp"
#include "no_more_files.hpp"
#include "text_matchers.hpp"
#include "transport/socket.hpp"

namespace ciranda {
namespace {

constexpr int kPatienceMs = 10'000;
constexpr std::size_t kMostHalfOpen = 8;
constexpr Purpose kPurpose{Role::kControl, 1, 0, 2, 0};

const Credentials& credentials() {
  static const Credentials all{test_secret(), kTestJobName, 1};
  return all;
}

// So many bytes, as they come; fewer if the other end closes.
std::vector<std::byte> read_from(int fd, std::size_t n_bytes) {
  const auto deadline = Clock::now() + std::chrono::milliseconds(kPatienceMs);
  std::vector<std::byte> bytes(n_bytes);
  std::size_t n_read = 0;
  while (n_read < n_bytes && wait_until_ready(fd, POLLIN, deadline).ok()) {
    const ssize_t n = recv(fd, bytes.data() + n_read, n_bytes - n_read, MSG_DONTWAIT);
    if (n <= 0) {
      break;
    }
    n_read += static_cast<std::size_t>(n);
  }
  EXPECT_EQ(n_read, n_bytes);
  return bytes;
}

class AcceptorTest : public ::testing::Test {
 protected:
  AcceptorTest() {
    std::vector<UniqueFd> listeners;
    listeners.push_back(listen_on(SocketAddress::parse("127.0.0.1:0").value(), {}).value());
    address_ = SocketAddress::local_of(listeners.front().get());
    AcceptorOptions options;
    options.credentials = credentials();
    options.expectation = {false, kPurpose.to, kPurpose.size};
    options.most_half_open = kMostHalfOpen;
    options.on_refused = [this](const std::string& what) { refused_.push_back(what); };
    acceptor_.emplace(Acceptor::create(loop_, std::move(listeners), std::move(options)).value());
  }

  // What is there within the time, as it is at `now`.
  void look(Clock::time_point now) {
    const auto events = loop_.wait(kPatienceMs);
    ASSERT_FALSE(events.empty());
    for (const EventLoop::Event& event : std::vector(events.begin(), events.end())) {
      (void)acceptor_->on_event(event.token, now);
    }
  }

  // A stranger who comes, and says this at once.
  Stranger come(const std::string& from, std::span<const std::byte> words) {
    Stranger stranger(address_.to_string(), SocketAddress::from_ip(from, 0).value());
    stranger.say(words);
    look(Clock::now());
    if (!loop_.wait(0).empty()) look(Clock::now());
    return stranger;
  }

  EventLoop loop_ = EventLoop::create().value();
  SocketAddress address_;
  std::vector<std::string> refused_;
  std::optional<Acceptor> acceptor_;
};

TEST_F(AcceptorTest, TurnsAwayWhoSaysNothingOnceItsTimeIsOver) {
  const Clock::time_point begin = Clock::now();
  Stranger silent(address_.to_string());
  look(begin);
  ASSERT_EQ(acceptor_->next_deadline(), begin + kHandshakeLimit);
  acceptor_->expire(begin + kHandshakeLimit - std::chrono::milliseconds(1));
  EXPECT_TRUE(refused_.empty());
  acceptor_->expire(begin + kHandshakeLimit);
  ASSERT_EQ(refused_.size(), 1U);
  EXPECT_TRUE(contains(refused_.front(), "did not prove in time that it belongs to the job"));
  EXPECT_EQ(acceptor_->next_deadline(), std::nullopt);
  EXPECT_EQ(silent.bytes_until_closed(std::chrono::milliseconds(kPatienceMs)), 0);
}

TEST_F(AcceptorTest, AProcessThatMayOpenNoMoreFilesEndsWhatComes) {
  Stranger early(address_.to_string());
  Stranger other(address_.to_string());
  {
    const NoMoreFiles full;
    look(Clock::now());
    EXPECT_TRUE(loop_.wait(0).empty());  // nothing wakes this rank again and again
  }
  for (Stranger* each : {&early, &other}) {  // are told why: they may be members
    EXPECT_EQ(each->bytes_until_closed(std::chrono::milliseconds(kPatienceMs)),
              static_cast<long>(Handshake::kChallengeBytes));
  }
  ASSERT_EQ(refused_.size(), 2U);
  EXPECT_TRUE(contains(refused_.front(), "was ended: this process may open no more files (ulimit -n)"));
  const Stranger late(address_.to_string());
  look(Clock::now());
  EXPECT_NE(acceptor_->next_deadline(), std::nullopt);
}

// As a rank does that tries several addresses at once, and has found another first.
TEST_F(AcceptorTest, TellsNothingOfWhoLeavesByItself) {
  { const Stranger brief(address_.to_string()); }
  look(Clock::now());  // it comes
  ASSERT_NE(acceptor_->next_deadline(), std::nullopt);
  look(Clock::now());  // and leaves
  EXPECT_TRUE(refused_.empty());
  EXPECT_EQ(acceptor_->next_deadline(), std::nullopt);
}

// Those who wait, with a proof to come, from a host of a member.
TEST_F(AcceptorTest, ManyWhoSayNothingKeepNoMemberOut) {
  ConnectingHandshake handshake(credentials(), kPurpose, {});
  Stranger member = come("127.0.0.1", handshake.take_output());
  std::vector<Stranger> strangers;
  for (std::size_t i = 0; i < 2 * kMostHalfOpen; ++i) strangers.push_back(come("127.0.0.1", {}));
  EXPECT_EQ(refused_.size(), kMostHalfOpen + 1);
  EXPECT_EQ(member.bytes_until_closed(std::chrono::milliseconds(0)), -1);
  const Stranger late = come("127.0.0.1", ConnectingHandshake(credentials(), kPurpose, {}).take_output());
  EXPECT_EQ(read_from(late.fd(), Handshake::kChallengeBytes).size(), Handshake::kChallengeBytes);
}

// They have heard what members say first, and say so from another host.
TEST_F(AcceptorTest, ManyFromOneHostKeepNoMemberOfAnotherOut) {
  ConnectingHandshake handshake(credentials(), kPurpose, {});
  const std::vector<std::byte> hello = handshake.take_output();
  Stranger member = come("127.0.0.1", hello);
  std::vector<Stranger> strangers;
  for (std::size_t i = 0; i < 2 * kMostHalfOpen; ++i) strangers.push_back(come("127.0.0.2", hello));
  EXPECT_EQ(refused_.size(), kMostHalfOpen + 1);
  EXPECT_EQ(member.bytes_until_closed(std::chrono::milliseconds(0)), -1);
}

// What was recorded of one conversation fits no other: to the very same hello there is another answer.
TEST_F(AcceptorTest, ChallengesEachConnectionAnew) {
  ConnectingHandshake recorded(credentials(), kPurpose, {});
  const std::vector<std::byte> hello = recorded.take_output();
  std::vector<std::vector<std::byte>> challenges;
  std::vector<Stranger> strangers;  // the end of one would be another event
  for (int i = 0; i < 2; ++i) {
    strangers.emplace_back(address_.to_string()).say(hello);
    look(Clock::now());  // it comes
    look(Clock::now());  // and speaks
    challenges.push_back(read_from(strangers.back().fd(), Handshake::kChallengeBytes));
  }
  EXPECT_NE(challenges[0], challenges[1]);
}

TEST(OutgoingConnection, SaysAnotherHelloEachTime) {
  const UniqueFd listener = listen_on(SocketAddress::parse("127.0.0.1:0").value(), {}).value();
  const SocketAddress address = SocketAddress::local_of(listener.get());
  EventLoop loop = EventLoop::create().value();
  std::vector<std::vector<std::byte>> hellos;
  for (int i = 0; i < 2; ++i) {
    OutgoingConnection connection(loop, address, credentials(), kPurpose);
    ASSERT_FALSE(loop.wait(kPatienceMs).empty());
    connection.on_event();
    ASSERT_TRUE(wait_until_ready(listener.get(), POLLIN, Clock::now() + std::chrono::milliseconds(kPatienceMs)).ok());
    const UniqueFd accepted(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    hellos.push_back(read_from(accepted.get(), Handshake::kHelloBytes));
  }
  EXPECT_NE(hellos[0], hellos[1]);
}

}  // namespace
}  // namespace ciranda
