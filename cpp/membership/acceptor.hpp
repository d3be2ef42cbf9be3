// Acceptor: listens, and returns only connections that have proved that they belong to the job.
//
// Unauthenticated peers cost little. Each must finish the handshake within `deadline`, and sends at most
// Handshake::kMostBytes before that. There are at most `most_half_open` of them; if one more connects, one is dropped:
// of those that have said least, of the address that has most of them, the oldest. So neither many strangers of a few
// hosts, nor those that do not know the job, keep a member out. It uses the caller's event loop (level-triggered, each
// descriptor is its own token): pass it every event whose token it owns(), and call expire() at next_deadline().
// Failure: `on_refused` gets the first few refusals, as sentences with the address. No refusal ends the acceptor.
//
// Called by PairConnector, on the thread that joins, and StoreServer, which creates it on the thread that starts the
// store, destroys it on the one that closes the store, and else calls it on its own; types used by StoreClient and
// probe_shared_memory(). No lock.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/spare_fd.hpp"
#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "membership/handshake.hpp"
#include "transport/event_loop.hpp"
#include "transport/socket_address.hpp"

namespace ciranda {

using Clock = std::chrono::steady_clock;

// An authenticated connection.
struct Admitted {
  KeyedSocket socket;
  SocketAddress address;
  Purpose purpose;
};

struct AcceptorOptions {
  Credentials credentials;
  AcceptingHandshake::Expectation expectation;
  std::chrono::milliseconds deadline = kHandshakeLimit;
  std::size_t most_half_open = 64;  // beside those that belong to the job, which may all come at once
  std::function<void(const std::string&)> on_refused;
};

class Acceptor {
 public:
  // REQUIRES: loop outlives the acceptor; the listeners are non-blocking.
  static Result<Acceptor> create(EventLoop& loop, std::vector<UniqueFd> listeners, AcceptorOptions options);

  bool owns(std::uint64_t token) const;
  // Returns the connection that this event has completed, if any. It is no longer on the loop.
  std::optional<Admitted> on_event(std::uint64_t token, Clock::time_point now);
  void expire(Clock::time_point now);
  // Nobody can connect any more, even while a forked child holds the listeners.
  void stop_listening();
  std::optional<Clock::time_point> next_deadline() const;

 private:
  struct HalfOpen {
    UniqueFd socket;
    SocketAddress address;
    std::string ip;  // of the address
    AcceptingHandshake handshake;
    Clock::time_point deadline;
    std::uint64_t number;
  };

  Acceptor(EventLoop& loop, std::vector<UniqueFd> listeners, AcceptorOptions options)
      : loop_(&loop), listeners_(std::move(listeners)), options_(std::move(options)) {}

  void accept_all(int listener, Clock::time_point now);
  void admit_to_handshake(UniqueFd socket, Clock::time_point now);
  void drop_one(const std::string& why);
  bool accept_at_limit(int listener, Clock::time_point now);
  void report(const std::string& refusal);
  void refuse(int fd, const std::string& reason);
  UniqueFd let_go(int fd);  // removes it from the loop

  EventLoop* loop_;
  std::vector<UniqueFd> listeners_;
  AcceptorOptions options_;
  std::map<int, HalfOpen> half_open_;
  std::uint64_t n_accepted_ = 0;
  int n_refused_ = 0;  // reported refusals
  // Lets a connection in, to end it: it would else stay at the listener, and wake its reader again and again.
  SpareFd spare_;
};

}  // namespace ciranda
