// Seal: proves that a record has arrived as it was sent; at the level kEncrypt it also hides the bytes. A connection
// has one for each direction, with a key of its own.
//
// kAuthenticate: a GMAC by AES-256, or a Poly1305 by ChaCha20, under a key that only the two ranks have. The number of
// the record is the nonce, so a record that is repeated, left out, moved, or of another connection or direction does
// not open. Long before the ciphers' limits a key is replaced by one that is derived from it.
// kEncrypt: the same, and the bytes are encrypted.
// kCheck: CRC32C, which detects every change of up to 32 consecutive bits, and all but one in 2^32 of other changes. It
// has no key, so it does not detect an attacker, who can compute it too.
// kNone proves nothing: for tests, which show what the check detects, and for links that check by themselves.
//
// Called by RecordChannel and SealedMessages, which hold two for each connection; SocketMesh and join_world() pass
// levels and keys on; one thread (the holder of the progress lock).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "crypto/aead.hpp"

namespace ciranda {

enum class WireLevel : std::uint8_t { kAuthenticate, kEncrypt, kCheck, kNone };

// The level of this name; kAuthenticate for any other name.
WireLevel wire_level_named(std::string_view name);

// The same at both ends of a connection.
struct SealKind {
  WireLevel level = WireLevel::kAuthenticate;
  Cipher cipher = Cipher::kAes256Gcm;  // of the first two levels
};

class Seal {
 public:
  using Tag = Aead::Tag;
  using Bytes = std::span<const std::byte>;
  using Parts = Aead::Parts;
  static constexpr std::size_t kMostParts = 2;

  // After so many records the next key is derived: at most 96 GiB, of which an attacker learns nothing (2^-60).
  static constexpr std::uint64_t kRecordsOfAKey = std::uint64_t{1} << 20;

  virtual ~Seal() = default;

  // Below, `sequence` is the number of records before this one in the same direction of the same connection, and never
  // less than in the call before; `header` describes the record.

  // Seals the concatenation of `parts`, at most kMostParts. If encrypts(), writes as many bytes to `out`, which travel
  // instead of them.
  virtual Tag seal(std::uint64_t sequence, Bytes header, Parts parts, std::byte* out) = 0;
  // Whether header and bytes are those of seal(); decrypts the bytes in place if encrypts().
  virtual bool opens(std::uint64_t sequence, Bytes header, const Tag& tag, std::span<std::byte> bytes) = 0;
  virtual bool encrypts() const { return false; }
  // The checksum of a header and its tag, so that a length that was changed by accident is detected before the reader
  // waits for its bytes.
  virtual std::uint32_t checksum_of(std::uint64_t sequence, Bytes header) const;
};

std::unique_ptr<Seal> make_seal(SealKind kind, const Aead::Key& key);

}  // namespace ciranda
