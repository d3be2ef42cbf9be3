// X25519 (RFC 7748): a secret that two processes agree on over a channel on which others may listen.
//
// Called by bindings/python/key_agreement.cc; pure functions. Failure: std::invalid_argument if the other's key is none
// to agree with; else as libcrypto.hpp. It does not protect against an attacker who can change what the channel
// carries.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "base/exported.hpp"

namespace ciranda {

using CurveKey = std::array<std::byte, 32>;

CIRANDA_EXPORTED CurveKey new_private_key();
CIRANDA_EXPORTED CurveKey public_key_of(const CurveKey& private_key);
// The shared secret: the same for both sides, each of which passes its private key and the other's public key.
CIRANDA_EXPORTED CurveKey agreed_key(const CurveKey& private_key, const CurveKey& public_key_of_other);

}  // namespace ciranda
