#include "crypto/hkdf.hpp"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <array>
#include <memory>

#include "crypto/libcrypto.hpp"

namespace ciranda {
namespace {

struct Free {
  void operator()(EVP_KDF* kdf) const { EVP_KDF_free(kdf); }
  void operator()(EVP_KDF_CTX* context) const { EVP_KDF_CTX_free(context); }
};

// OpenSSL only reads the bytes, but takes a pointer to non-const, which must not be null even for no bytes.
OSSL_PARAM parameter(const char* name, std::span<const std::byte> bytes) {
  static std::byte nothing{};
  std::byte* const data = bytes.empty() ? &nothing : const_cast<std::byte*>(bytes.data());
  return OSSL_PARAM_construct_octet_string(name, data, bytes.size());
}

}  // namespace

void hkdf_sha256(std::span<std::byte> key, std::span<const std::byte> secret, std::span<const std::byte> salt,
                 std::span<const std::byte> info) {
  const std::unique_ptr<EVP_KDF, Free> kdf(EVP_KDF_fetch(libcrypto_context(), "HKDF", nullptr));
  const std::unique_ptr<EVP_KDF_CTX, Free> context(EVP_KDF_CTX_new(kdf.get()));
  std::array<char, 7> digest{"SHA256"};
  const std::array<OSSL_PARAM, 5> parameters{
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest.data(), 0), parameter(OSSL_KDF_PARAM_KEY, secret),
      parameter(OSSL_KDF_PARAM_SALT, salt), parameter(OSSL_KDF_PARAM_INFO, info), OSSL_PARAM_construct_end()};
  const bool derived =
      context != nullptr && EVP_KDF_derive(context.get(), octets_to(key), key.size(), parameters.data()) == 1;
  require_of_libcrypto(derived, "a key");
}

}  // namespace ciranda
