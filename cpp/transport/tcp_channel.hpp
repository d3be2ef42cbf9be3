// TcpChannel: a Channel over a connected, non-blocking socket that is watched edge-triggered.
//
// The mesh hands in what epoll reports (on_events). read_some() and write_some() ask the system only while the socket
// may be ready, so that looking at an idle channel costs no system call.
// Threads, failure: as Channel. The destructor shuts the connection down, so that the peer sees its end even while a
// forked child still holds the descriptor. In a forked child it only closes the child's copy.
#pragma once

#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/unique_fd.hpp"
#include "transport/channel.hpp"

namespace ciranda {

class TcpChannel final : public Channel {
 public:
  static constexpr std::uint32_t kEvents = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;

  explicit TcpChannel(UniqueFd socket) : socket_(std::move(socket)) {}
  ~TcpChannel() override;
  TcpChannel(TcpChannel&&) = default;
  TcpChannel& operator=(TcpChannel&&) = delete;

  std::size_t write_some(std::span<const std::byte> bytes) override { return write_some(bytes, {}); }
  std::size_t write_some(std::span<const std::byte> first, std::span<const std::byte> second) override {
    return write_parts({first, second, {}});
  }
  // The same for three ranges.
  std::size_t write_parts(const std::array<std::span<const std::byte>, 3>& ranges);
  std::size_t read_some(std::span<std::byte> bytes) override;
  ChannelState state() const override { return closed_ ? ChannelState::kClosed : ChannelState::kOpen; }

  // It ended because the peer's host answered no more.
  bool fell_silent() const;

  bool may_write() const { return may_write_ && !closed_; }  // for all that is known

  int fd() const { return socket_.get(); }
  void on_events(std::uint32_t events);
  void mark_closed();
  // What could not be done may be possible now, for all that is known: the next call asks the system.
  void look_again() { may_read_ = may_write_ = true; }

 private:
  UniqueFd socket_;
  pid_t owner_ = getpid();
  bool may_read_ = true;
  bool may_write_ = true;
  bool closed_ = false;
  int error_ = 0;  // what the system said when it ended, if it did
};

// Ends both directions of a connection and closes it. What the peer sent and nobody read is read and dropped first: to
// close over unread bytes would reset the connection and could take our own last bytes with it.
void close_gracefully(UniqueFd socket);

}  // namespace ciranda
