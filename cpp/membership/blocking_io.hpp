// Sends and receives whole messages over a non-blocking socket, and waits up to a limit. Used while a world forms.
//
// Called by StoreClient, PairConnector and probe_shared_memory(); one thread per socket. Failure: Timeout, Aborted if
// the wait was interrupted, or RanksLost if the other end closed, or a message was changed on its way. The caller adds
// the peer's name.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "membership/sealed_messages.hpp"
#include "membership/wait_limit.hpp"

namespace ciranda {

// Until one of these is ready at least.
inline Status wait_until_ready(std::span<pollfd> sources, const WaitLimit& limit) {
  for (;;) {
    const bool is_last = limit.is_reached();
    const int n_ready = poll(sources.data(), sources.size(), limit.slice_ms());
    if (n_ready > 0) return {};
    if (Status going = limit.check(); !going.ok()) return going;
    if (n_ready == 0 && is_last) return Status::timeout("did not answer in time");
    if (n_ready < 0 && errno != EINTR) return Status::from_errno("cannot wait for a connection");
  }
}

inline Status wait_until_ready(int fd, short events, const WaitLimit& limit) {
  pollfd source{fd, events, 0};
  return wait_until_ready(std::span(&source, 1), limit);
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

// The next message, of at most `most_bytes`. Reads no byte after it.
inline Result<std::vector<std::byte>> receive_message(int fd, SealedMessages& messages, std::size_t most_bytes,
                                                      const WaitLimit& limit) {
  std::vector<std::byte> bytes(std::min<std::size_t>(SealedMessages::kHeaderBytes + most_bytes, 65536));
  for (;;) {
    auto message = messages.next(most_bytes);
    if (!message.ok()) return message.status();
    if (message.value()) return std::move(*message.value());
    const ssize_t n = recv(fd, bytes.data(), std::min(bytes.size(), messages.wants()), MSG_DONTWAIT);
    if (n > 0) {
      messages.receive(std::span(bytes).first(static_cast<std::size_t>(n)));
    } else if (n < 0 && errno == EAGAIN) {
      if (Status ready = wait_until_ready(fd, POLLIN, limit); !ready.ok()) return ready;
    } else if (n == 0 || errno != EINTR) {
      return Status::ranks_lost("ended the connection");
    }
  }
}

}  // namespace ciranda
