// LateConnector: connects two ranks when they first use a connection that they did not get as they joined, with what is
// left of a rank's joining: its listeners, which stay open, and the addresses of all others. In a pair the higher rank
// connects, as in joining: for control first, and only then for data.
//
// It admits only members, and of their connections only what the pair may have and has not yet. A peer whose system
// takes the connection is waited for, since it may be stopped; one that cannot be reached is given up after `limit`.
//
// Called by join_world(), which makes it; through LateConnections by SocketMesh. One thread at a time. The destructor
// ends the listening; in a forked child it must not run.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "membership/pair_connector.hpp"
#include "transport/late_connections.hpp"

namespace ciranda {

struct LateConnectorOptions {
  int rank = 0;
  std::vector<bool> may_connect;    // by rank: with whom this rank may have connections for data
  std::vector<bool> lacks_control;  // by rank: of those, to whom it has no connection for control; empty: to none
  int n_sockets = 1;                // of a pair, for data
  int n_bytes_to_send = 0;          // room in each socket; 0: as much as the system gives
  std::chrono::milliseconds limit{30000};
};

class LateConnector final : public LateConnections {
 public:
  LateConnector(std::unique_ptr<PairConnector> connector, LateConnectorOptions options);
  ~LateConnector() override { connector_->stop_listening(); }
  LateConnector(const LateConnector&) = delete;
  LateConnector& operator=(const LateConnector&) = delete;

  bool connect(Use use, int peer) override;
  void forget(int peer) override;
  std::vector<Outcome> poll() override;
  bool is_connecting() const override { return n_begun_ > 0; }
  int fd() const override { return connector_->fd(); }

 private:
  enum class State : std::uint8_t {
    kNone,
    kBegun,
    kLast,   // begun, and the peer has left: nothing is tried again
    kEnded,  // made, given up, or never to be made
  };
  struct Pair {
    State state = State::kNone;
    std::chrono::steady_clock::duration waited{};
  };

  Pair& pair(Use use, int peer) { return pairs_[static_cast<std::size_t>(use)][static_cast<std::size_t>(peer)]; }
  const Pair& pair(Use use, int peer) const {
    return pairs_[static_cast<std::size_t>(use)][static_cast<std::size_t>(peer)];
  }
  int n_sockets(Use use) const { return use == Use::kControl ? 1 : options_.n_sockets; }
  bool admits(const Purpose& purpose) const;
  bool is_begun(Use use, int peer) const;
  bool is_under_way(Use use, int peer) const;
  void end(Use use, int peer);
  std::optional<Outcome> outcome_of(Use use, int peer, std::chrono::steady_clock::duration since_poll);
  std::vector<KeyedSocket> take(Use use, int peer);
  std::string why_given_up(Use use, int peer) const;

  std::unique_ptr<PairConnector> connector_;
  LateConnectorOptions options_;
  std::array<std::vector<Pair>, 2> pairs_;  // by use and rank
  int n_begun_ = 0;
  std::chrono::steady_clock::time_point polled_at_;
};

}  // namespace ciranda
