// PairConnector: makes the connections of one rank with all others, all at once. Of a pair, the higher rank connects
// and the lower one accepts. Several connections are spread over the peer's addresses, and with them over one's own
// interfaces: from that which is in the same network, else from that in the same place of the list.
//
// Threads: one. Failure: errors name the peer, its host and its address. A peer that dies meanwhile is noticed at once
// if it is on this machine or had connected.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "membership/acceptor.hpp"
#include "membership/outgoing_connection.hpp"
#include "membership/wait_limit.hpp"
#include "transport/event_loop.hpp"
#include "transport/socket_address.hpp"

namespace ciranda {

struct PeerAddress {
  std::vector<SocketAddress> addresses;  // one at least
  std::string name;                      // "rank 2 on node7 (10.0.0.7:4000)"
  int process_fd = -1;                   // a pidfd, not owned; -1 where there is none
};

struct PairConnectorOptions {
  Credentials credentials;
  int rank = 0;
  std::vector<PeerAddress> peers;  // by rank
  // To connect from; the system chooses where there are less than two.
  std::vector<InterfaceAddress> interfaces;
  WaitLimit limit;
  std::chrono::milliseconds handshake_limit = kHandshakeLimit;
  std::function<void(const std::string&)> on_refused;
};

class PairConnector {
 public:
  static Result<std::unique_ptr<PairConnector>> create(std::vector<UniqueFd> listeners, PairConnectorOptions options);
  // The members are public to make_unique only: use create().
  PairConnector(EventLoop loop, PairConnectorOptions options) : loop_(std::move(loop)), options_(std::move(options)) {}

  // Has so many connections of this role with each of these peers when it returns OK.
  Status connect(Role role, const std::vector<int>& peers, int n_connections = 1);

  // REQUIRES: connect() has made it. May be called once for each.
  UniqueFd take(Role role, int peer, int index = 0);
  int fd(Role role, int peer) const { return ready_.at({role, peer, 0}).get(); }

  // An error about a peer that went away, with those added that have ended: one of them may be why.
  Status with_the_dead(const Status& error) const;

 private:
  struct Key {
    Role role;
    int peer;
    int index;
    bool operator<(const Key& other) const {
      return std::tie(role, peer, index) < std::tie(other.role, other.peer, other.index);
    }
  };
  struct Attempt {
    std::unique_ptr<OutgoingConnection> connection;
    Clock::time_point next_try;
    Clock::time_point first_refused;  // by the system, in a row
    std::string last_reason;
  };

  const PeerAddress& peer(int rank) const { return options_.peers[static_cast<std::size_t>(rank)]; }
  SocketAddress source_for(const SocketAddress& to, std::size_t index) const;
  Status begin_tries(Clock::time_point now);
  Status on_event(std::uint64_t token, Clock::time_point now);
  Status settle(const Key& key, Attempt& attempt, Clock::time_point now);
  Status look_for_dead() const;
  // The names of the peers that have ended: those on this machine, and those who had connected.
  std::vector<std::string> dead_peers() const;
  Status timed_out(const std::set<Key>& missing) const;
  int timeout_ms(Clock::time_point now) const;

  EventLoop loop_;
  PairConnectorOptions options_;
  std::unique_ptr<Acceptor> acceptor_;
  std::map<Key, Attempt> attempts_;
  std::map<Key, UniqueFd> ready_;
};

}  // namespace ciranda
