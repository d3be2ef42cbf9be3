// Whole messages over a non-blocking socket, waiting for it until a deadline. Used while a circle forms.
//
// Threads: one per socket. Failure: Timeout, or RanksLost when the other end closed; the caller names the peer.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "membership/wire.hpp"

namespace ciranda {

inline int milliseconds_until(std::chrono::steady_clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30));
}

inline Status wait_until_ready(int fd, short events, std::chrono::steady_clock::time_point deadline) {
  for (;;) {
    const int timeout_ms = milliseconds_until(deadline);
    pollfd source{fd, events, 0};
    const int n_ready = poll(&source, 1, timeout_ms);
    if (n_ready > 0) {
      return {};
    }
    if (n_ready == 0 && timeout_ms == 0) {
      return Status::timeout("did not answer in time");
    }
    if (n_ready < 0 && errno != EINTR) {
      return Status::from_errno("cannot wait for a connection");
    }
  }
}

inline Status send_all(int fd, std::span<const std::byte> bytes, std::chrono::steady_clock::time_point deadline) {
  while (!bytes.empty()) {
    const ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    } else if (n < 0 && errno == EAGAIN) {
      if (Status ready = wait_until_ready(fd, POLLOUT, deadline); !ready.ok()) {
        return ready;
      }
    } else if (n < 0 && errno != EINTR) {
      return Status::ranks_lost("ended the connection");
    }
  }
  return {};
}

// One frame, and not a byte more.
inline Result<std::vector<std::byte>> receive_frame(int fd, std::size_t most_bytes,
                                                    std::chrono::steady_clock::time_point deadline) {
  FrameBuffer frames(most_bytes);
  std::vector<std::byte> bytes(std::min<std::size_t>(most_bytes + FrameBuffer::kHeaderBytes, 65536));
  for (;;) {
    auto frame = frames.next();
    if (!frame.ok()) {
      return frame.status();
    }
    if (frame.value()) {
      return std::move(*frame.value());
    }
    const ssize_t n = recv(fd, bytes.data(), std::min(bytes.size(), frames.wants()), MSG_DONTWAIT);
    if (n > 0) {
      frames.append(std::span(bytes).first(static_cast<std::size_t>(n)));
    } else if (n < 0 && errno == EAGAIN) {
      if (Status ready = wait_until_ready(fd, POLLIN, deadline); !ready.ok()) {
        return ready;
      }
    } else if (n == 0 || errno != EINTR) {
      return Status::ranks_lost("ended the connection");
    }
  }
}

}  // namespace ciranda
