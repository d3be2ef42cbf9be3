// fill_random: random bytes from the operating system, for secrets and nonces. Any thread.
// Called by LaneArena, PeerSettling, shared_memory.cc, Acceptor, OutgoingConnection and shm_probe.hpp.
#pragma once

#include <cstddef>
#include <span>

#include "base/status.hpp"

namespace ciranda {

Status fill_random(std::span<std::byte> bytes);

}  // namespace ciranda
