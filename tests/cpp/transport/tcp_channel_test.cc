#include "transport/tcp_channel.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "transport/channel_conformance.hpp"
#include "transport/event_loop.hpp"
#include "transport/socket.hpp"

namespace ciranda {
namespace {

UniqueFd accept_one(int listener) {
  pollfd source{listener, POLLIN, 0};
  EXPECT_EQ(poll(&source, 1, 5000), 1);
  return UniqueFd(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

class TcpPair final : public ChannelPair {
 public:
  explicit TcpPair(const std::string& ip) {
    auto listener = listen_on(SocketAddress::from_ip(ip, 0).value(), {});
    auto connecting = start_connecting(SocketAddress::local_of(listener.value().get()));
    left_.emplace(std::move(connecting).value());
    right_.emplace(accept_one(listener.value().get()));
    for (TcpChannel* each : {&*left_, &*right_}) {
      tune_connection(each->fd());
      EXPECT_TRUE(loop_.add(each->fd(), TcpChannel::kEvents, each == &*left_ ? 0 : 1).ok());
    }
  }
  Channel& left() override { return *left_; }
  Channel& right() override { return *right_; }
  int left_fd() const { return left_->fd(); }
  void end_left() override { left_.reset(); }
  void poll() override {
    for (const EventLoop::Event& event : loop_.wait(1)) {
      (event.token == 0 ? *left_ : *right_).on_events(event.events);
    }
  }

 private:
  EventLoop loop_ = EventLoop::create().value();
  std::optional<TcpChannel> left_;
  std::optional<TcpChannel> right_;
};

INSTANTIATE_TEST_SUITE_P(Tcp, ChannelConformance,
                         ::testing::Values(ChannelKind{"ipv4", [] { return std::make_unique<TcpPair>("127.0.0.1"); }},
                                           ChannelKind{"ipv6", [] { return std::make_unique<TcpPair>("::1"); }}),
                         [](const auto& each) { return each.param.name; });

TEST(TcpChannel, LastBytesArriveEvenIfUnreadBytesAreLeftBehind) {
  TcpPair pair("127.0.0.1");
  const auto bye = random_bytes(3, 1);
  ASSERT_EQ(pair.right().write_some(random_bytes(50'000, 2)), 50'000U);
  pair.poll();
  ASSERT_EQ(pair.left().write_some(bye), bye.size());
  pair.end_left();
  EXPECT_EQ(read_everything(pair, pair.right()), bye);
}

TEST(TcpChannel, EndIsSeenWhileAForkedChildHoldsTheSocketAndTheChildsEndIsNot) {
  TcpPair pair("127.0.0.1");
  int to_child[2];
  int from_child[2];
  ASSERT_EQ(pipe(to_child) | pipe(from_child), 0);
  char byte = 0;
  const pid_t child = fork();
  if (child == 0) {
    close(to_child[1]);                    // so that the child ends with its parent, however that ends
    const int held = dup(pair.left_fd());  // as any child of a rank that does not exec
    pair.end_left();                       // ends the child's copy of the channel, and nothing else
    const bool told = write(from_child[1], &byte, 1) == 1;
    _exit(told && held >= 0 && read(to_child[0], &byte, 1) == 1 ? 0 : 1);
  }
  ASSERT_EQ(read(from_child[0], &byte, 1), 1);
  pair.poll();
  pair.poll();
  EXPECT_EQ(pair.right().state(), ChannelState::kOpen);
  pair.end_left();
  while (pair.right().state() == ChannelState::kOpen) {
    pair.poll();
  }
  EXPECT_EQ(write(to_child[1], &byte, 1), 1);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  for (const int fd : {to_child[0], to_child[1], from_child[0], from_child[1]}) {
    close(fd);
  }
}

}  // namespace
}  // namespace ciranda
