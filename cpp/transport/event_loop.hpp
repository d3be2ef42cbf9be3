// EventLoop: epoll with RAII. Registers descriptors under a token of the caller's choice.
//
// Called by SocketMesh, SleepGate, Acceptor, OutgoingConnection, PairConnector, StoreClient and StoreServer; one thread
// at a time. Another thread may poll fd() meanwhile: fd() is readable while events are pending. Ownership: descriptors
// are not owned. Before closing one, remove() it if another process may hold a duplicate; otherwise the kernel removes
// it on close.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "base/unique_fd.hpp"

namespace ciranda {

class EventLoop {
 public:
  struct Event {
    std::uint64_t token = 0;
    std::uint32_t events = 0;  // EPOLLIN | ...
  };

  static Result<EventLoop> create();

  int fd() const { return epoll_.get(); }
  Status add(int fd, std::uint32_t events, std::uint64_t token);
  void change(int fd, std::uint32_t events, std::uint64_t token);
  void remove(int fd);

  // Returns at most 64 pending events. Waits up to timeout_ms (-1: for ever) for the first. The span is valid until the
  // next call.
  std::span<const Event> wait(int timeout_ms);

 private:
  explicit EventLoop(UniqueFd epoll) : epoll_(std::move(epoll)), events_(64) {}

  UniqueFd epoll_;
  std::vector<Event> events_;
};

}  // namespace ciranda
