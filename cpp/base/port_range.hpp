// PortRange: the ports on which a process may listen, from a setting.
// Called by Config, socket.hpp, join_world() and StoreServer; pure.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.hpp"

namespace ciranda {

// Both ends included; 0-0 is any port.
struct PortRange {
  std::uint16_t low = 0;
  std::uint16_t high = 0;
  bool any() const { return high == 0; }
  std::string to_string() const;
};

// "4000-4100", "4000", or "" for any. InvalidArgument for anything else.
Result<PortRange> parse_port_range(const std::string& text);

}  // namespace ciranda
