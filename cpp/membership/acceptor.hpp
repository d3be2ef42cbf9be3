// Acceptor: listens, and hands out connections only once they have proved to belong to the job.
//
// Strangers cost little: each has `deadline` to finish the handshake, sends at most Handshake::kMostBytes before it is
// believed, and there are at most kMostHalfOpen of them; one more, and the oldest is dropped.
// Threads: one. It lives on the caller's event loop (level-triggered, each descriptor is its own token): pass it every
// event whose token it owns(), and call expire() when next_deadline() has come.
// Failure: the first few refusals go to `on_refused`, a sentence naming the address; none ends the acceptor.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "membership/handshake.hpp"
#include "transport/event_loop.hpp"
#include "transport/socket_address.hpp"

namespace ciranda {

using Clock = std::chrono::steady_clock;

// A connection of the job.
struct Admitted {
  UniqueFd socket;
  SocketAddress address;
  Purpose purpose;
};

struct AcceptorOptions {
  Credentials credentials;
  AcceptingHandshake::Expectation expectation;
  std::chrono::milliseconds deadline = kHandshakeLimit;
  std::function<void(const std::string&)> on_refused;
};

class Acceptor {
 public:
  static constexpr std::size_t kMostHalfOpen = 64;

  // REQUIRES: loop outlives the acceptor; the listeners are non-blocking.
  static Result<Acceptor> create(EventLoop& loop, std::vector<UniqueFd> listeners, AcceptorOptions options);

  bool owns(std::uint64_t token) const;
  // At most one connection has become whole by one event. It is no longer on the loop.
  std::optional<Admitted> on_event(std::uint64_t token, Clock::time_point now);
  void expire(Clock::time_point now);
  std::optional<Clock::time_point> next_deadline() const;

 private:
  struct HalfOpen {
    UniqueFd socket;
    SocketAddress address;
    AcceptingHandshake handshake;
    Clock::time_point deadline;
    std::uint64_t number;
  };

  Acceptor(EventLoop& loop, std::vector<UniqueFd> listeners, AcceptorOptions options)
      : loop_(&loop), listeners_(std::move(listeners)), options_(std::move(options)) {}

  void accept_all(int listener, Clock::time_point now);
  void admit_to_handshake(UniqueFd socket, Clock::time_point now);
  void drop_oldest();
  void refuse(int fd, const std::string& reason);
  UniqueFd let_go(int fd);  // which is no longer on the loop

  EventLoop* loop_;
  std::vector<UniqueFd> listeners_;
  AcceptorOptions options_;
  std::map<int, HalfOpen> half_open_;
  std::uint64_t n_accepted_ = 0;
  int n_refused_ = 0;  // of those that were reported
};

}  // namespace ciranda
