// TcpChannel: a Channel over a connected, non-blocking socket that is watched edge-triggered.
//
// The mesh passes in the events that epoll reports (on_events). read_some() and write_some() make a system call only if
// the socket may be ready, so polling an idle channel costs none. Called by RecordChannel and SocketMesh;
// close_gracefully() by Acceptor, OutgoingConnection, PairConnector, join_world() and StoreServer. Threads, failure: as
// Channel. The destructor shuts the connection down, so the peer sees its end even while a forked child still holds the
// descriptor. In a forked child it only closes the child's copy.
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
    return write_parts({first, second, {}, {}});
  }
  // The same for four ranges.
  std::size_t write_parts(const std::array<std::span<const std::byte>, 4>& ranges);
  std::size_t read_some(std::span<std::byte> bytes) override;
  // Reads into the concatenation of two ranges in the same way.
  std::size_t read_some(std::span<std::byte> first, std::span<std::byte> second);
  ChannelState state() const override { return closed_ ? ChannelState::kClosed : ChannelState::kOpen; }

  // True if the connection ended because the peer's host stopped answering.
  bool fell_silent() const;

  // False: a write would take nothing now. Asks the system if the socket was full at the last write.
  bool has_room();
  // True if all that the peer has sent has been read, and it sends no more. A connection that was only marked closed
  // may still have bytes on their way.
  bool is_at_end() const { return has_ended_ && !may_read_; }

  // The bytes that have arrived and were not read. A system call.
  std::size_t n_unread() const;

  int fd() const { return socket_.get(); }
  void on_events(std::uint32_t events);
  // Nothing more is to be written: the peer has left, or is gone.
  void mark_closed();
  // The next read_some() and write_some() make a system call, even if the socket was not ready before.
  void look_again() { may_read_ = may_write_ = true; }

 private:
  std::size_t note_read(ssize_t n_read, std::size_t n_asked);

  UniqueFd socket_;
  pid_t owner_ = getpid();
  bool may_read_ = true;
  bool may_write_ = true;
  bool was_full_ = false;  // at the last write
  bool closed_ = false;
  bool has_ended_ = false;  // a read has found the end
  int error_ = 0;           // the errno with which the connection ended, if any
};

// Ends both directions of a connection and closes it. Before, it reads and drops unread bytes: closing with unread
// bytes would reset the connection, and this side's last bytes could be lost.
void close_gracefully(UniqueFd socket);

}  // namespace ciranda
