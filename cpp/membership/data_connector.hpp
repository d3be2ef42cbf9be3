// DataConnector: connects two ranks for their data when they first use it, with what is left of a rank's joining: its
// listeners, which stay open, and the addresses of all others. In a pair the higher rank connects, as in joining.
//
// It admits only members, of their data only what the pair may have and has not yet. A peer whose system takes the
// connection is waited for, since it may be stopped; one that cannot be reached is given up after `limit`.
//
// Called by join_world(), which makes it; through DataConnections by SocketMesh. One thread at a time. The destructor
// ends the listening; in a forked child it must not run.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "membership/pair_connector.hpp"
#include "transport/data_connections.hpp"

namespace ciranda {

struct DataConnectorOptions {
  int rank = 0;
  std::vector<bool> may_connect;  // by rank: with whom this rank may have such connections
  int n_sockets = 1;              // of a pair
  int n_bytes_to_send = 0;        // room in each socket; 0: as much as the system gives
  std::chrono::milliseconds limit{30000};
};

class DataConnector final : public DataConnections {
 public:
  DataConnector(std::unique_ptr<PairConnector> connector, DataConnectorOptions options);
  ~DataConnector() override { connector_->stop_listening(); }
  DataConnector(const DataConnector&) = delete;
  DataConnector& operator=(const DataConnector&) = delete;

  bool connect(int peer) override;
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

  bool admits(const Purpose& purpose) const;
  bool is_begun(int peer) const;
  bool is_under_way(int peer) const;
  void end(int peer);
  std::vector<KeyedSocket> take(int peer);
  std::string why_given_up(int peer) const;

  std::unique_ptr<PairConnector> connector_;
  DataConnectorOptions options_;
  std::vector<Pair> pairs_;  // by rank
  int n_begun_ = 0;
  std::chrono::steady_clock::time_point polled_at_;
};

}  // namespace ciranda
