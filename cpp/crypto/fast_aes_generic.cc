#include "crypto/fast_aes.hpp"

namespace ciranda {

bool has_fast_aes() { return true; }  // not known: every OpenSSL has AES

}  // namespace ciranda
