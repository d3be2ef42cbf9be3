// Sends and receives whole messages over a non-blocking socket, and waits up to a limit. Used while a world forms.
//
// Called by StoreClient, PairConnector and probe_shared_memory(); one thread per socket. Failure: Timeout, Aborted if
// the wait was interrupted, or RanksLost if the other end closed. The caller adds the peer's name.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "membership/wait_limit.hpp"
#include "membership/wire.hpp"

namespace ciranda {

inline Status wait_until_ready(int fd, short events, const WaitLimit& limit) {
  for (;;) {
    const bool is_last = limit.is_reached();
    pollfd source{fd, events, 0};
    const int n_ready = poll(&source, 1, limit.slice_ms());
    if (n_ready > 0) return {};
    if (Status going = limit.check(); !going.ok()) return going;
    if (n_ready == 0 && is_last) return Status::timeout("did not answer in time");
    if (n_ready < 0 && errno != EINTR) return Status::from_errno("cannot wait for a connection");
  }
}

inline Status send_all(int fd, std::span<const std::byte> bytes, const WaitLimit& limit) {
  while (!bytes.empty()) {
    const ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    } else if (n < 0 && errno == EAGAIN) {
      if (Status ready = wait_until_ready(fd, POLLOUT, limit); !ready.ok()) return ready;
    } else if (n < 0 && errno != EINTR) {
      return Status::ranks_lost("ended the connection");
    }
  }
  return {};
}

// Reads one frame, and no byte after it.
inline Result<std::vector<std::byte>> receive_frame(int fd, std::size_t most_bytes, const WaitLimit& limit) {
  FrameBuffer frames(most_bytes);
  std::vector<std::byte> bytes(std::min<std::size_t>(most_bytes + FrameBuffer::kHeaderBytes, 65536));
  for (;;) {
    auto frame = frames.next();
    if (!frame.ok()) return frame.status();
    if (frame.value()) return std::move(*frame.value());
    const ssize_t n = recv(fd, bytes.data(), std::min(bytes.size(), frames.wants()), MSG_DONTWAIT);
    if (n > 0) {
      frames.append(std::span(bytes).first(static_cast<std::size_t>(n)));
    } else if (n < 0 && errno == EAGAIN) {
      if (Status ready = wait_until_ready(fd, POLLIN, limit); !ready.ok()) return ready;
    } else if (n == 0 || errno != EINTR) {
      return Status::ranks_lost("ended the connection");
    }
  }
}

}  // namespace ciranda
