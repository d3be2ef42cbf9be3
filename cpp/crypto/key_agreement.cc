#include "crypto/key_agreement.hpp"

#include <openssl/evp.h>
#include <openssl/rand.h>

#include <memory>
#include <stdexcept>

#include "crypto/libcrypto.hpp"

namespace ciranda {
namespace {

constexpr const char* kCurve = "X25519";

struct FreeKey {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(EVP_PKEY_CTX* context) const { EVP_PKEY_CTX_free(context); }
};
using Key = std::unique_ptr<EVP_PKEY, FreeKey>;

Key private_of(const CurveKey& bytes) {
  Key key(EVP_PKEY_new_raw_private_key_ex(libcrypto_context(), kCurve, nullptr, octets(bytes), bytes.size()));
  require_of_libcrypto(key != nullptr, "a private key");
  return key;
}

}  // namespace

CurveKey new_private_key() {
  CurveKey bytes{};
  require_of_libcrypto(RAND_priv_bytes_ex(libcrypto_context(), octets_to(bytes), bytes.size(), 0) == 1,
                       "a private key");
  return bytes;
}

CurveKey public_key_of(const CurveKey& private_key) {
  CurveKey bytes{};
  std::size_t size = bytes.size();
  const int made = EVP_PKEY_get_raw_public_key(private_of(private_key).get(), octets_to(bytes), &size);
  require_of_libcrypto(made == 1 && size == bytes.size(), "a public key");
  return bytes;
}

CurveKey agreed_key(const CurveKey& private_key, const CurveKey& public_key_of_other) {
  const Key mine = private_of(private_key);
  const Key other(EVP_PKEY_new_raw_public_key_ex(libcrypto_context(), kCurve, nullptr, octets(public_key_of_other),
                                                 public_key_of_other.size()));
  const std::unique_ptr<EVP_PKEY_CTX, FreeKey> context(
      EVP_PKEY_CTX_new_from_pkey(libcrypto_context(), mine.get(), nullptr));
  require_of_libcrypto(other != nullptr && context != nullptr && EVP_PKEY_derive_init(context.get()) == 1, "a key");
  CurveKey bytes{};
  std::size_t size = bytes.size();
  if (EVP_PKEY_derive_set_peer(context.get(), other.get()) != 1 ||
      EVP_PKEY_derive(context.get(), octets_to(bytes), &size) != 1) {
    throw std::invalid_argument("there is no key to agree on with this public key");
  }
  return bytes;
}

}  // namespace ciranda
