// HMAC-SHA256 (RFC 2104, FIPS 180-4).
//
// Called by Handshake; pure functions. Failure: none. A message is the concatenation of its parts.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>

namespace ciranda {

using Digest = std::array<std::byte, 32>;

Digest sha256(std::initializer_list<std::span<const std::byte>> parts);
Digest hmac_sha256(std::span<const std::byte> key, std::initializer_list<std::span<const std::byte>> parts);

// Takes the same time for a wrong digest as for the right one.
inline bool equal_in_constant_time(const Digest& left, const Digest& right) {
  volatile unsigned difference = 0;
  for (std::size_t i = 0; i < left.size(); ++i) difference = difference | std::to_integer<unsigned>(left[i] ^ right[i]);
  return difference == 0;
}

}  // namespace ciranda
