// Whether this processor has instructions for AES-GCM. Without them it is slower than ChaCha20-Poly1305.
//
// Called by join_world(); defined in fast_aes_*.cc; any thread.
#pragma once

namespace ciranda {

bool has_fast_aes();

}  // namespace ciranda
