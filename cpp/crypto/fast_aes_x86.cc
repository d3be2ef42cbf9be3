#include "crypto/fast_aes.hpp"

namespace ciranda {

bool has_fast_aes() { return __builtin_cpu_supports("aes") != 0 && __builtin_cpu_supports("pclmul") != 0; }

}  // namespace ciranda
