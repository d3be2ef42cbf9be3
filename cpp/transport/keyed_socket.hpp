// KeyedSocket: a connection to a peer that has proved that it has the job's secret, with the keys that only the two
// have.
//
// Used by RecordChannel, SocketMesh, LateConnections, Handshake, SealedMessages, Acceptor, OutgoingConnection and
// PairConnector; plain values.
#pragma once

#include "base/unique_fd.hpp"
#include "crypto/aead.hpp"

namespace ciranda {

// Of one connection: a key for each direction.
struct ConnectionKeys {
  Aead::Key outgoing{};
  Aead::Key incoming{};
};

struct KeyedSocket {
  UniqueFd fd;
  ConnectionKeys keys;
};

}  // namespace ciranda
