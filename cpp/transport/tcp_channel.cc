#include "transport/tcp_channel.hpp"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <utility>

namespace ciranda {
namespace {

bool is_not_now(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

TcpChannel::~TcpChannel() {
  if (getpid() == owner_) close_gracefully(std::move(socket_));
}

std::size_t TcpChannel::write_parts(const std::array<std::span<const std::byte>, 4>& ranges) {
  std::array<iovec, 4> parts{};
  msghdr message{};
  message.msg_iov = parts.data();
  for (const std::span<const std::byte> range : ranges) {
    if (range.empty()) continue;
    // sendmsg() only reads the bytes, but iovec has no const.
    parts[message.msg_iovlen++] = {const_cast<std::byte*>(range.data()), range.size()};
  }
  if (!may_write_ || closed_ || message.msg_iovlen == 0) return 0;
  ssize_t n_sent = 0;
  do {
    n_sent = sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (n_sent < 0 && errno == EINTR);
  if (n_sent >= 0) {
    was_full_ = false;
    return static_cast<std::size_t>(n_sent);
  }
  may_write_ = false;
  was_full_ = is_not_now(errno);
  if (!was_full_) {
    error_ = errno;
    mark_closed();
  }
  return 0;
}

bool TcpChannel::has_room() {
  if (!may_write_ || closed_) return false;
  if (!was_full_) return true;
  pollfd asked{socket_.get(), POLLOUT, 0};
  was_full_ = poll(&asked, 1, 0) == 0;
  may_write_ = !was_full_;
  return may_write_;
}

std::size_t TcpChannel::read_some(std::span<std::byte> bytes) {
  if (!may_read_ || bytes.empty()) return 0;
  ssize_t n_read = 0;
  do {
    n_read = recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  } while (n_read < 0 && errno == EINTR);
  return note_read(n_read, bytes.size());
}

std::size_t TcpChannel::read_some(std::span<std::byte> first, std::span<std::byte> second) {
  if (!may_read_) return 0;
  std::array<iovec, 2> parts{{{first.data(), first.size()}, {second.data(), second.size()}}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  ssize_t n_read = 0;
  do {
    n_read = recvmsg(socket_.get(), &message, MSG_DONTWAIT);
  } while (n_read < 0 && errno == EINTR);
  return note_read(n_read, first.size() + second.size());
}

std::size_t TcpChannel::note_read(ssize_t n_read, std::size_t n_asked) {
  if (n_read > 0) {
    // A short read has emptied the socket, so further bytes trigger a new edge. The end of the stream has had its edge.
    may_read_ = closed_ || static_cast<std::size_t>(n_read) == n_asked;
    return static_cast<std::size_t>(n_read);
  }
  may_read_ = false;
  if (n_read < 0 && is_not_now(errno)) return 0;
  if (n_read < 0) error_ = errno;
  closed_ = has_ended_ = true;
  return 0;
}

std::size_t TcpChannel::n_unread() const {
  int n_bytes = 0;
  return ioctl(socket_.get(), FIONREAD, &n_bytes) == 0 ? static_cast<std::size_t>(n_bytes) : 0;
}

void TcpChannel::on_events(std::uint32_t events) {
  if ((events & EPOLLERR) != 0 && error_ == 0) {
    socklen_t n_bytes = sizeof(error_);
    (void)getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error_, &n_bytes);
  }
  if ((events & EPOLLOUT) != 0) may_write_ = true;
  if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
    mark_closed();
  } else if ((events & EPOLLIN) != 0) {
    may_read_ = true;
  }
}

bool TcpChannel::fell_silent() const { return error_ == ETIMEDOUT || error_ == EHOSTUNREACH || error_ == ENETUNREACH; }

void TcpChannel::mark_closed() {
  closed_ = true;
  may_read_ = true;  // bytes that arrived before the end are still readable
}

void close_gracefully(UniqueFd socket) {
  if (!socket.valid()) return;
  (void)shutdown(socket.get(), SHUT_WR);
  std::array<std::byte, 4096> dropped;
  constexpr int kMostReads = 256;
  for (int i = 0; i < kMostReads && recv(socket.get(), dropped.data(), dropped.size(), MSG_DONTWAIT) > 0; ++i) {
  }
  (void)shutdown(socket.get(), SHUT_RDWR);
}

}  // namespace ciranda
