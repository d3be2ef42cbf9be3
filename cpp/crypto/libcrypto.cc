#include "crypto/libcrypto.hpp"

#include <openssl/crypto.h>

#include <stdexcept>
#include <string>

namespace ciranda {
namespace {

OSSL_LIB_CTX* make_context() {
  // Otherwise a thread that still runs while the process exits would use what has been freed.
  const bool ready = OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr) == 1;
  OSSL_LIB_CTX* const context = ready ? OSSL_LIB_CTX_new() : nullptr;
  require_of_libcrypto(context != nullptr, "its context");
  return context;
}

}  // namespace

OSSL_LIB_CTX* libcrypto_context() {
  static OSSL_LIB_CTX* const context = make_context();  // never freed
  return context;
}

void require_of_libcrypto(bool succeeded, const char* what) {
  if (!succeeded) throw std::runtime_error(std::string("libcrypto cannot make ") + what + ": is memory exhausted?");
}

}  // namespace ciranda
