#include "transport/socket.hpp"

#include <gtest/gtest.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>

#include <array>

#include "text_matchers.hpp"

namespace ciranda {
namespace {

TEST(SocketAddress, ReadsAndWritesBothFamilies) {
  for (const char* text : {"127.0.0.1:4000", "[::1]:1", "[fd00::7]:65535", "10.0.0.7:0"}) {
    const auto address = SocketAddress::parse(text);
    ASSERT_TRUE(address.ok()) << text;
    EXPECT_EQ(address.value().to_string(), text);
  }
}

TEST(SocketAddress, RefusesWhatIsNone) {
  for (const char* text : {"", ":", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "::1:80", "[::1]", "[]:80",
                           "127.0.0.1:80x", "127.0.0.1:-1", "not a host:80", ":80"}) {
    EXPECT_FALSE(SocketAddress::parse(text).ok()) << text;
  }
}

TEST(SocketAddress, ResolvesNames) {
  const auto addresses = SocketAddress::resolve("localhost:80");
  ASSERT_TRUE(addresses.ok());
  for (const SocketAddress& address : addresses.value()) {
    EXPECT_TRUE(address.is_loopback());
    EXPECT_EQ(address.port(), 80);
  }
}

TEST(SocketAddress, KnowsWhatIsPrivate) {
  const auto is_private = [](const char* ip) { return SocketAddress::from_ip(ip, 1).value().is_private(); };
  for (const char* ip : {"127.1.2.3", "10.1.1.1", "172.16.0.1", "172.31.9.9", "192.168.1.1", "169.254.1.1", "::1",
                         "fe80::1", "fd12::1", "::ffff:10.0.0.1"}) {
    EXPECT_TRUE(is_private(ip)) << ip;
  }
  for (const char* ip : {"8.8.8.8", "172.32.0.1", "192.169.1.1", "2001:db8::1", "::2"}) {
    EXPECT_FALSE(is_private(ip)) << ip;
  }
}

TEST(Interface, IsFoundByNameAndByAddressElseListed) {
  EXPECT_TRUE(find_interface("lo", AF_INET).value().address.is_loopback());
  EXPECT_EQ(find_interface("lo", AF_INET).value().address.family(), AF_INET);
  EXPECT_EQ(find_interface("127.0.0.1", AF_INET).value().address.ip(), "127.0.0.1");
  const auto missing = find_interface("nosuch0", AF_INET);
  EXPECT_EQ(missing.status().kind(), ErrorKind::kInvalidArgument);
  EXPECT_TRUE(contains(missing.status().message(), "'nosuch0'"));
  EXPECT_TRUE(contains(missing.status().message(), "lo (127.0.0.1)"));
}

TEST(Interface, KnowsItsNeighbours) {
  const auto lo = find_interface("127.0.0.1", AF_INET).value();
  EXPECT_EQ(lo.n_prefix_bits, 8U);
  EXPECT_TRUE(lo.is_next_to(SocketAddress::from_ip("127.200.3.1", 80).value()));
  EXPECT_FALSE(lo.is_next_to(SocketAddress::from_ip("126.0.0.1", 80).value()));
  EXPECT_FALSE(lo.is_next_to(SocketAddress::from_ip("::1", 80).value()));
  const InterfaceAddress odd{"", SocketAddress::from_ip("10.0.0.0", 0).value(), 19};
  EXPECT_TRUE(odd.is_next_to(SocketAddress::from_ip("10.0.31.255", 0).value()));
  EXPECT_FALSE(odd.is_next_to(SocketAddress::from_ip("10.0.32.0", 0).value()));
}

TEST(Connecting, BeginsAtTheAddressThatIsAskedFor) {
  const auto listener = listen_on(SocketAddress::from_ip("127.0.0.1", 0).value(), {});
  const auto to = SocketAddress::local_of(listener.value().get());
  const auto socket = start_connecting(to, SocketAddress::from_ip("127.0.0.5", 1234).value());
  ASSERT_TRUE(socket.ok()) << socket.status().message();
  EXPECT_EQ(SocketAddress::local_of(socket.value().get()).ip(), "127.0.0.5");
  const auto foreign = start_connecting(to, SocketAddress::from_ip("192.0.2.1", 0).value());
  EXPECT_TRUE(contains(foreign.status().message(), "192.0.2.1"));
}

TEST(PortRange, ReadsRangesAndRefusesOthers) {
  EXPECT_TRUE(parse_port_range("").value().any());
  EXPECT_EQ(parse_port_range("4000-4100").value().to_string(), "4000-4100");
  EXPECT_EQ(parse_port_range("4000").value().to_string(), "4000-4000");
  for (const char* text : {"4100-4000", "0-10", "x", "1-", "-5", "1-70000", "1-2-3", " 1"}) {
    EXPECT_FALSE(parse_port_range(text).ok()) << text;
  }
}

TEST(Listen, TakesTheFirstFreePortOfTheRangeAndNamesARangeInUse) {
  const SocketAddress loopback = SocketAddress::from_ip("127.0.0.1", 0).value();
  const auto any = listen_on(loopback, {});
  ASSERT_TRUE(any.ok());
  const std::uint16_t port = SocketAddress::local_of(any.value().get()).port();
  const auto failed = listen_on(loopback, {port, port});
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.status().kind(), ErrorKind::kInvalidArgument);
  EXPECT_TRUE(contains(failed.status().message(), std::to_string(port) + "-" + std::to_string(port)));
  EXPECT_TRUE(contains(failed.status().message(), "127.0.0.1"));
}

TEST(Connect, ToNobodyIsRanksLostWithTheAddress) {
  std::string address;
  {
    const auto gone = listen_on(SocketAddress::from_ip("127.0.0.1", 0).value(), {});
    address = SocketAddress::local_of(gone.value().get()).to_string();
  }
  const SocketAddress to = SocketAddress::parse(address).value();
  auto fd = start_connecting(to);
  Status status = fd.status();
  if (fd.ok()) {
    pollfd source{fd.value().get(), POLLOUT, 0};
    ASSERT_EQ(poll(&source, 1, 5000), 1);
    status = finish_connecting(fd.value().get(), to);
  }
  EXPECT_EQ(status.kind(), ErrorKind::kRanksLost);
  EXPECT_TRUE(contains(status.message(), address));
}

TEST(Connect, ToItselfIsToNobody) {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress loopback = SocketAddress::from_ip("127.0.0.1", 0).value();
  ASSERT_EQ(bind(fd.get(), loopback.raw(), loopback.n_bytes()), 0);
  const SocketAddress own = SocketAddress::local_of(fd.get());
  ASSERT_EQ(connect(fd.get(), own.raw(), own.n_bytes()), 0);  // as the system does by chance
  const Status status = finish_connecting(fd.get(), own);
  EXPECT_EQ(status.kind(), ErrorKind::kRanksLost);
  EXPECT_TRUE(contains(status.message(), own.to_string()));
}

int option_of(int fd, int option) {
  int value = 0;
  socklen_t n_bytes = sizeof value;
  EXPECT_EQ(getsockopt(fd, IPPROTO_TCP, option, &value, &n_bytes), 0);
  return value;
}

std::string congestion_control_of(int fd) {
  std::array<char, 16> name{};
  socklen_t n_bytes = name.size() - 1;
  EXPECT_EQ(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), &n_bytes), 0);
  return name.data();
}

// Chosen before the ends are connected: Linux goes on pacing what bbr has paced once.
TEST(Connection, IsTunedForSmallMessagesAndNeverPaced) {
  const auto listener = listen_on(SocketAddress::from_ip("127.0.0.1", 0).value(), {});
  const auto fd = start_connecting(SocketAddress::local_of(listener.value().get()));
  pollfd source{listener.value().get(), POLLIN, 0};
  ASSERT_EQ(poll(&source, 1, 5000), 1);
  const UniqueFd accepted(accept4(listener.value().get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  for (const int end : {fd.value().get(), accepted.get()}) {
    EXPECT_NE(congestion_control_of(end), "bbr");
    tune_connection(end);
    EXPECT_NE(option_of(end, TCP_NODELAY), 0);
  }
}

TEST(Connection, TellsItsLeastRoundTripAtBothEnds) {
  const auto listener = listen_on(SocketAddress::from_ip("127.0.0.1", 0).value(), {});
  const auto fd = start_connecting(SocketAddress::local_of(listener.value().get()));
  pollfd source{listener.value().get(), POLLIN, 0};
  ASSERT_EQ(poll(&source, 1, 5000), 1);
  const UniqueFd accepted(accept4(listener.value().get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  for (const int end : {fd.value().get(), accepted.get()}) {
    ASSERT_TRUE(least_round_trip(end).has_value());
    EXPECT_LT(*least_round_trip(end), std::chrono::seconds(5));
  }
  EXPECT_EQ(least_round_trip(-1), std::nullopt);
}

int send_buffer_of(int fd) {
  int value = 0;
  socklen_t n_bytes = sizeof value;
  EXPECT_EQ(getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &value, &n_bytes), 0);
  return value;
}

TEST(Connection, HasTheRoomToSendThatIsAskedForIfTheSystemGrantsIt) {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int before = send_buffer_of(fd.get());
  make_room_to_send(fd.get(), 0);
  EXPECT_EQ(send_buffer_of(fd.get()), before);
  make_room_to_send(fd.get(), before);
  EXPECT_EQ(send_buffer_of(fd.get()), 2 * before);
  make_room_to_send(fd.get(), 1 << 30);  // more than any system grants: it may go on growing
  int is_locked = 1;
  socklen_t n_bytes = sizeof is_locked;
  if (getsockopt(fd.get(), SOL_SOCKET, SO_BUF_LOCK, &is_locked, &n_bytes) != 0) GTEST_SKIP() << "before Linux 5.14";
  EXPECT_EQ(is_locked, 0);
}

}  // namespace
}  // namespace ciranda
