// Traffic: what has gone over the connections with one peer, or through the rings in memory that both share. Used by
// Mesh, RingChannel, SocketMesh, socket.cc and ProgressLoop; a plain value.
#pragma once

#include <cstdint>

namespace ciranda {

struct Traffic {
  std::uint64_t n_sent = 0;      // bytes that have arrived at the peer, with all that is sent beside the tensors
  std::uint64_t n_received = 0;  // bytes
  std::uint64_t n_retries = 0;   // segments that TCP has sent again
  std::uint64_t n_queued = 0;    // bytes that were written and have not arrived there yet

  Traffic& operator+=(const Traffic& other) {
    n_sent += other.n_sent;
    n_received += other.n_received;
    n_retries += other.n_retries;
    n_queued += other.n_queued;
    return *this;
  }
};

}  // namespace ciranda
