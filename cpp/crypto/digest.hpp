// SHA-256 (FIPS 180-4) and HMAC-SHA256 (RFC 2104). A message is the concatenation of its parts.
//
// Called by Handshake; pure functions. Failure: as libcrypto.hpp.
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
bool equal_in_constant_time(const Digest& left, const Digest& right);

}  // namespace ciranda
