// X25519 (RFC 7748): a secret that two processes agree on over a channel on which others may listen.
//
// Called by bindings/python/key_agreement.cc; pure functions. Failure: std::invalid_argument if the other's key is none
// to agree with; else as libcrypto.hpp. Who can change what the channel carries can take part in the agreement.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "base/exported.hpp"

namespace ciranda {

using CurveKey = std::array<std::byte, 32>;

CIRANDA_EXPORTED CurveKey new_private_key();
CIRANDA_EXPORTED CurveKey public_key_of(const CurveKey& private_key);
// What the holders of both private keys get from the other's public one.
CIRANDA_EXPORTED CurveKey agreed_key(const CurveKey& private_key, const CurveKey& public_key_of_other);

}  // namespace ciranda
