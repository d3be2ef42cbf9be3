// The collectives that can go by peer, in the memory of devices (base/way.hpp), with every op that is elementwise.
// Used by ways.cc and peer_backend.cc; pure.
#pragma once

#include <algorithm>
#include <array>

#include "call/op_table.hpp"

namespace ciranda {

inline constexpr std::array kPeerCollectives{Collective::kAllreduce, Collective::kAllgather, Collective::kBroadcast,
                                             Collective::kReducescatter, Collective::kAlltoall};

constexpr bool may_go_by_peer(Collective collective) {
  return std::ranges::find(kPeerCollectives, collective) != kPeerCollectives.end();
}

}  // namespace ciranda
