// PairConnector: connects one rank with all others, all at once. In a pair, the higher rank connects and the lower one
// accepts. Several connections are spread over the peer's addresses, and so over this rank's interfaces: each connects
// from the interface in the same network, or else from the one with the same index in the list.
//
// Called by join_world(), and LateConnector, which goes on with it where join_world() has ended; one thread at a time.
// Failure: errors name the peer, its host and its address. While connect() waits, the death of a peer is detected at
// once if the peer is on this machine or had connected.
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
  std::vector<SocketAddress> addresses;  // at least one
  std::string name;                      // "rank 2 on node7 (10.0.0.7:4000)"
  int process_fd = -1;                   // a pidfd, not owned; -1: none
};

struct PairConnectorOptions {
  Credentials credentials;
  int rank = 0;
  std::vector<PeerAddress> peers;  // by rank
  // The interfaces to connect from; if there are fewer than two, the system chooses.
  std::vector<InterfaceAddress> interfaces;
  WaitLimit limit;
  std::chrono::milliseconds handshake_limit = kHandshakeLimit;
  std::function<Status()> look;  // called several times a second: an error ends the wait; empty: nothing to look at
  std::function<bool(const Purpose&)> admits;  // whether to keep what a member has connected; empty: all
  std::function<void(const std::string&)> on_refused;
  std::function<void(const std::string&)> on_retry;  // another reason why a connection must be tried again
};

class PairConnector {
 public:
  static Result<std::unique_ptr<PairConnector>> create(std::vector<UniqueFd> listeners, PairConnectorOptions options);
  // The members are public to make_unique only: use create().
  PairConnector(EventLoop loop, PairConnectorOptions options) : loop_(std::move(loop)), options_(std::move(options)) {}

  // Makes n_connections of this role with each of these peers; all exist when it returns OK.
  Status connect(Role role, const std::vector<int>& peers, int n_connections = 1);

  // The same in steps, for a caller that does not wait. begin(): REQUIRES: peer is lower than this rank. advance() goes
  // on with all that was begun and that has arrived; fd() is readable when it has something to do. drop() gives up.
  void begin(Role role, int peer, int n_connections);
  void advance() { advance(false); }
  void drop(Role role, int peer, int n_connections);
  int fd() const { return loop_.fd(); }
  bool is_ready(Role role, int peer, int n_connections) const;
  bool is_ready_at(Role role, int peer, int index) const { return ready_.contains({role, peer, index}); }
  const std::string& name(int rank) const { return peer(rank).name; }
  // Where the connection with this index goes.
  const SocketAddress& address(int rank, int index) const {
    const std::vector<SocketAddress>& all = peer(rank).addresses;
    return all[static_cast<std::size_t>(index) % all.size()];
  }
  // Why this connection cannot be had, if it has failed for good.
  const Status& failure(Role role, int peer, int index) const;
  // The other end has taken the connection, and has not admitted it yet.
  bool is_connected(Role role, int peer, int index) const;
  // Likewise, and its host has acknowledged all that was sent: its process may be stopped.
  bool is_unanswered(Role role, int peer, int index) const;
  // Why the last try has failed; empty if none has.
  std::string last_reason(Role role, int peer, int index) const;

  // From now on these options apply: the waits of those that joined are over, and none of them refuses for good.
  void serve(std::function<bool(const Purpose&)> admits);
  // Nobody can connect any more, even while a forked child holds the listeners.
  void stop_listening() { acceptor_->stop_listening(); }

  // Hands over a connection, once. REQUIRES: connect() has made it.
  KeyedSocket take(Role role, int peer, int index = 0);
  const KeyedSocket& socket(Role role, int peer) const { return ready_.at({role, peer, 0}); }

  // Adds to an error about a lost peer the names of all peers that have ended, since one of them may be the cause.
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
    Clock::time_point first_refused;  // start of the current row of refusals by the system
    std::string last_reason;
    Status failure;  // if it has failed for good
  };

  const PeerAddress& peer(int rank) const { return options_.peers[static_cast<std::size_t>(rank)]; }
  SocketAddress source_for(const SocketAddress& to, std::size_t index) const;
  void advance(bool waits);
  void begin_tries(Clock::time_point now);
  void on_event(std::uint64_t token, Clock::time_point now);
  void keep(Admitted admitted);
  void settle(const Key& key, Attempt& attempt, Clock::time_point now);
  Status first_failure() const;
  Status look_for_dead() const;
  // The names of the peers that have ended, of those on this machine or connected before.
  std::vector<std::string> dead_peers() const;
  Status timed_out(const std::set<Key>& missing) const;
  int timeout_ms(Clock::time_point now) const;

  EventLoop loop_;
  PairConnectorOptions options_;
  bool have_joined_ = false;  // all ranks
  std::unique_ptr<Acceptor> acceptor_;
  std::map<Key, Attempt> attempts_;
  std::map<Key, KeyedSocket> ready_;
};

}  // namespace ciranda
