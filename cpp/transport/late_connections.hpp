// LateConnections: makes the connections of two ranks that were not connected as they joined, when the two first use
// them: one for control, and after it those for data.
//
// Of two ranks the higher connects, and the lower is connected to.
//
// Called by SocketMesh; implemented by LateConnector. One thread (the holder of the progress lock); fd(): any.
// Failure: an Outcome with a reason.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/keyed_socket.hpp"

namespace ciranda {

class LateConnections {
 public:
  enum class Use : std::uint8_t { kControl, kData };
  struct Outcome {
    Use use = Use::kData;
    int peer = 0;
    std::vector<KeyedSocket> sockets;
    std::string why_not;  // a sentence without its end; empty: the sockets are connected
  };

  virtual ~LateConnections() = default;

  // Begins to connect. False: it is the peer that connects, and must be asked to do so.
  virtual bool connect(Use use, int peer) = 0;
  // The peer is gone. Only a connection that it may have admitted before still has an outcome.
  virtual void forget(int peer) = 0;

  // Goes on with what was begun, and with those that connect to this rank; returns what has ended, each once. It is to
  // be called when fd() is readable, soon after again while is_connecting(), and now and then in any case.
  virtual std::vector<Outcome> poll() = 0;
  virtual bool is_connecting() const = 0;
  virtual int fd() const = 0;
};

}  // namespace ciranda
