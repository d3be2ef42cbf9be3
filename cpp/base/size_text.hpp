// size_text: a number of bytes for messages.
// Called by DataPlane, world_text.hpp; pure.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace ciranda {

// "4 bytes", "64 KiB", "2 GiB": in the largest unit of which it is a whole number.
inline std::string size_text(std::uint64_t n_bytes) {
  constexpr std::array<std::string_view, 4> kUnits{" bytes", " KiB", " MiB", " GiB"};
  std::size_t unit = 0;
  while (n_bytes > 0 && n_bytes % 1024 == 0 && unit + 1 < kUnits.size()) {
    n_bytes /= 1024;
    ++unit;
  }
  return std::to_string(n_bytes) + std::string(kUnits[unit]);
}

}  // namespace ciranda
