#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "crypto/fast_aes.hpp"

namespace ciranda {

bool has_fast_aes() {
  constexpr unsigned long kNeeded = HWCAP_AES | HWCAP_PMULL;
  return (getauxval(AT_HWCAP) & kNeeded) == kNeeded;
}

}  // namespace ciranda
