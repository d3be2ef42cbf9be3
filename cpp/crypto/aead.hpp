// Aead: authenticated encryption with associated data (RFC 5116), under one key.
//
// Neither cipher may see two messages with the same nonce under one key. Called by Seal; types used by
// keyed_socket.hpp; one thread. Failure: open() tells of a message that is not as it was sealed; else as libcrypto.hpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace ciranda {

enum class Cipher : std::uint8_t { kAes256Gcm, kChaCha20Poly1305 };

class Aead {
 public:
  using Key = std::array<std::byte, 32>;
  using Nonce = std::array<std::byte, 12>;
  using Tag = std::array<std::byte, 16>;
  using Parts = std::span<const std::span<const std::byte>>;

  Aead(Cipher cipher, const Key& key);
  ~Aead();
  Aead(Aead&&) noexcept;
  Aead& operator=(Aead&&) noexcept;

  // Writes the encrypted concatenation of `parts`, as long as they are, to `out`, and returns its tag.
  Tag seal(const Nonce& nonce, Parts associated, Parts parts, std::byte* out);
  // Decrypts `bytes` in place. False: they, `associated`, the nonce or the tag are not those of one message that was
  // sealed under this key; then `bytes` have no meaning.
  bool open(const Nonce& nonce, Parts associated, const Tag& tag, std::span<std::byte> bytes);

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace ciranda
