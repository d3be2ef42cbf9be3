#include "transport/socket.hpp"

#include <linux/sockios.h>
#include <linux/tcp.h>  // has more of tcp_info than the C library's
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace ciranda {
namespace {

void set_option(int fd, int level, int option, int value) {
  // All options set here are optional, so a refusal is no error.
  (void)setsockopt(fd, level, option, &value, sizeof(value));
}

std::string text_of(int code) { return std::generic_category().message(code); }

Result<UniqueFd> new_socket(int family) {
  UniqueFd fd(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd.valid()) return fd;
  rlimit files{};
  if (errno != EMFILE || getrlimit(RLIMIT_NOFILE, &files) != 0) return Status::from_errno("cannot make a socket");
  return Status::internal("this process may open no more files: it has " + std::to_string(files.rlim_cur) +
                          " (ulimit -n)");
}

Status cannot_connect(const SocketAddress& to, int error) {
  std::string message = "cannot connect to " + to.to_string() + ": " + text_of(error);
  if (error == ENETUNREACH && to.is_loopback()) {
    return Status::invalid_argument(message + " (the loopback interface is down: ip link set lo up)");
  }
  return error == ECONNREFUSED ? Status::ranks_lost(std::move(message)) : Status::internal(std::move(message));
}

// REQUIRES: not connected yet. Linux keeps pacing a connection that bbr has once paced.
void avoid_pacing(int fd) {
  std::array<char, 16> name{};
  socklen_t n_bytes = name.size() - 1;
  if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), &n_bytes) != 0 ||
      !std::string_view(name.data()).starts_with("bbr")) {
    return;
  }
  for (const std::string_view wanted : {std::string_view("cubic"), std::string_view("reno")}) {
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, wanted.data(), static_cast<socklen_t>(wanted.size())) == 0) return;
  }
}

// The number of the error, 0 for success.
int try_listen(int fd, const SocketAddress& address) {
  set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.family() == AF_INET6) set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
  if (bind(fd, address.raw(), address.n_bytes()) != 0 || listen(fd, SOMAXCONN) != 0) return errno;
  return 0;
}

}  // namespace

Result<UniqueFd> listen_on(const SocketAddress& address, PortRange ports) {
  SocketAddress candidate = address;
  for (int port = ports.low; port <= ports.high; ++port) {
    auto fd = new_socket(address.family());
    if (!fd.ok()) return fd;
    candidate.set_port(static_cast<std::uint16_t>(port));
    if (address.is_private()) {
      avoid_pacing(fd.value().get());  // accepted connections inherit this
    }
    const int error = try_listen(fd.value().get(), candidate);
    if (error == 0) return fd;
    if (error != EADDRINUSE && error != EACCES) {
      return Status::internal("cannot listen on " + candidate.to_string() + ": " + text_of(error));
    }
    if (error == EACCES) {
      return Status::invalid_argument("may not listen on " + candidate.to_string() + ": " + text_of(error));
    }
  }
  if (ports.any()) return Status::internal("no free port is left on " + address.ip());
  return Status::invalid_argument("all ports of the range " + ports.to_string() + " are in use on " + address.ip() +
                                  ": give a wider range, or none for any port");
}

Result<UniqueFd> start_connecting(const SocketAddress& to, const SocketAddress& from) {
  auto fd = new_socket(to.family());
  if (!fd.ok()) return fd;
  if (to.is_private()) avoid_pacing(fd.value().get());
  if (from.n_bytes() > 0) {
    SocketAddress any_port = from;
    any_port.set_port(0);
    set_option(fd.value().get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    if (bind(fd.value().get(), any_port.raw(), any_port.n_bytes()) != 0) {
      return Status::internal("cannot connect from " + from.ip() + ": " + text_of(errno));
    }
  }
  if (connect(fd.value().get(), to.raw(), to.n_bytes()) != 0 && errno != EINPROGRESS && errno != EINTR) {
    return cannot_connect(to, errno);
  }
  return fd;
}

Status finish_connecting(int fd, const SocketAddress& to) {
  int error = 0;
  socklen_t n_bytes = sizeof(error);
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n_bytes) != 0) error = errno;
  // Where nobody listens, the system may choose that very port to connect from: then the two ends are one socket.
  const SocketAddress from = SocketAddress::local_of(fd);
  if (error == 0 && from.same_ip(to) && from.port() == to.port()) error = ECONNREFUSED;
  return error == 0 ? Status() : cannot_connect(to, error);
}

void tune_connection(int fd, std::chrono::milliseconds link_timeout) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  const SocketAddress peer = SocketAddress::peer_of(fd);
  if (!peer.is_loopback()) {
    // The first probe is sent after a third of the link timeout. A link counts as dead only after this many lost probes
    // or more, since a network may lose any single one.
    constexpr std::int64_t kFewestProbes = 8;
    const auto third = std::max<std::int64_t>(link_timeout.count() / 3000, 1);
    const std::int64_t interval = std::max<std::int64_t>(2 * third / kFewestProbes, 1);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, static_cast<int>(third));
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, static_cast<int>(interval));
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, static_cast<int>(std::max(2 * third / interval, kFewestProbes)));
    // The first six retransmissions of a few packets follow one another at the same distance, so that a network that
    // loses some packets is told from one that is cut.
    set_option(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1);
  }
}

std::optional<std::chrono::microseconds> least_round_trip(int fd) {
  constexpr std::uint32_t kUnknown = ~std::uint32_t{0};
  tcp_info info{};
  socklen_t n_bytes = sizeof(info);
  info.tcpi_min_rtt = kUnknown;  // older kernels do not set it
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n_bytes) != 0 || info.tcpi_min_rtt == kUnknown) return std::nullopt;
  return std::chrono::microseconds(info.tcpi_min_rtt);
}

Traffic traffic_of(int fd) {
  tcp_info info{};
  socklen_t n_bytes = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n_bytes) != 0) return {};
  int n_queued = 0;
  if (ioctl(fd, SIOCOUTQ, &n_queued) != 0) n_queued = 0;
  return {info.tcpi_bytes_acked, info.tcpi_bytes_received, info.tcpi_total_retrans,
          static_cast<std::uint64_t>(n_queued)};
}

// The kernel limits the requested size to net.core.wmem_max and doubles it. The size that it chooses by itself may be
// larger than that.
void make_room_to_send(int fd, int n_bytes) {
  int now = 0;
  socklen_t n = sizeof(now);
  if (getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &now, &n) != 0 || now >= 2LL * n_bytes) return;
  set_option(fd, SOL_SOCKET, SO_SNDBUF, n_bytes);
  if (getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &now, &n) == 0 && now < 2LL * n_bytes) {
    set_option(fd, SOL_SOCKET, SO_BUF_LOCK, 0);
  }
}

void limit_unsent(int fd, int n_bytes) { set_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, n_bytes); }

}  // namespace ciranda
