// The parts of OpenSSL's libcrypto that the engine uses, in a library context of their own: neither the configuration
// of the process's OpenSSL nor its providers matter to them, and threads may use them until the process has ended.
//
// Called by aead.hpp, digest.hpp, hkdf.hpp and key_agreement.hpp; any thread. Failure: std::runtime_error, if memory is
// exhausted.
#pragma once

#include <openssl/types.h>

#include <cstddef>
#include <span>

namespace ciranda {

OSSL_LIB_CTX* libcrypto_context();

// Throws unless `succeeded`.
void require_of_libcrypto(bool succeeded, const char* what);

// Bytes as the type that libcrypto takes.
inline const unsigned char* octets(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}
inline unsigned char* octets_to(std::span<std::byte> bytes) { return reinterpret_cast<unsigned char*>(bytes.data()); }

}  // namespace ciranda
