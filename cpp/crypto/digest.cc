#include "crypto/digest.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <vector>

#include "crypto/libcrypto.hpp"

namespace ciranda {
namespace {

std::vector<std::byte> joined(std::initializer_list<std::span<const std::byte>> parts) {
  std::vector<std::byte> message;
  for (const auto part : parts) message.insert(message.end(), part.begin(), part.end());
  return message;
}

}  // namespace

Digest sha256(std::initializer_list<std::span<const std::byte>> parts) {
  const std::vector<std::byte> message = joined(parts);
  Digest digest{};
  const int made =
      EVP_Q_digest(libcrypto_context(), "SHA256", nullptr, message.data(), message.size(), octets_to(digest), nullptr);
  require_of_libcrypto(made == 1, "a digest");
  return digest;
}

Digest hmac_sha256(std::span<const std::byte> key, std::initializer_list<std::span<const std::byte>> parts) {
  const std::vector<std::byte> message = joined(parts);
  Digest digest{};
  const auto* const made = EVP_Q_mac(libcrypto_context(), "HMAC", nullptr, "SHA256", nullptr, key.data(), key.size(),
                                     octets(message), message.size(), octets_to(digest), digest.size(), nullptr);
  require_of_libcrypto(made != nullptr, "an HMAC");
  return digest;
}

bool equal_in_constant_time(const Digest& left, const Digest& right) {
  return CRYPTO_memcmp(left.data(), right.data(), left.size()) == 0;
}

}  // namespace ciranda
