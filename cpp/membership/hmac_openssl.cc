#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <vector>

#include "membership/hmac.hpp"

namespace ciranda {
namespace {

std::vector<unsigned char> joined(std::initializer_list<std::span<const std::byte>> parts) {
  std::vector<unsigned char> message;
  for (const auto part : parts) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(part.data());
    message.insert(message.end(), bytes, bytes + part.size());
  }
  return message;
}

unsigned char* raw(Digest& digest) { return reinterpret_cast<unsigned char*>(digest.data()); }

}  // namespace

Digest sha256(std::initializer_list<std::span<const std::byte>> parts) {
  const auto message = joined(parts);
  Digest digest{};
  unsigned n_bytes = 0;
  EVP_Digest(message.data(), message.size(), raw(digest), &n_bytes, EVP_sha256(), nullptr);
  return digest;
}

Digest hmac_sha256(std::span<const std::byte> key, std::initializer_list<std::span<const std::byte>> parts) {
  const auto message = joined(parts);
  Digest digest{};
  unsigned n_bytes = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), message.data(), message.size(), raw(digest), &n_bytes);
  return digest;
}

}  // namespace ciranda
