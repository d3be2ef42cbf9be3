// HKDF-SHA256 (RFC 5869): keys from a secret. Of one secret, another salt or another info gives an independent key.
//
// Called by Handshake, SealedMessages and Seal; a pure function. Failure: as libcrypto.hpp.
#pragma once

#include <cstddef>
#include <span>

namespace ciranda {

// Fills `key`, of at most 8160 bytes. REQUIRES: info has at most 1024 bytes.
void hkdf_sha256(std::span<std::byte> key, std::span<const std::byte> secret, std::span<const std::byte> salt,
                 std::span<const std::byte> info);

}  // namespace ciranda
