#include "transport/seal.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/crc32c.hpp"
#include "crypto/hkdf.hpp"

namespace ciranda {
namespace {

std::uint32_t crc32c_of(std::uint64_t sequence) { return crc32c(std::as_bytes(std::span(&sequence, 1))); }

class KeyedSeal final : public Seal {
 public:
  KeyedSeal(SealKind kind, const Aead::Key& key)
      : kind_(kind), key_(key), aead_(kind.cipher, key), encrypts_(kind.level == WireLevel::kEncrypt) {}

  Tag seal(std::uint64_t sequence, Bytes header, Parts parts, std::byte* out) override {
    renew_key(sequence);
    if (encrypts_) return aead_.seal(nonce_of(sequence), std::array{header}, parts, out);
    std::array<Bytes, 1 + kMostParts> associated{header};
    std::copy_n(parts.begin(), std::min(parts.size(), kMostParts), associated.begin() + 1);
    return aead_.seal(nonce_of(sequence), associated, {}, nullptr);
  }
  bool opens(std::uint64_t sequence, Bytes header, const Tag& tag, std::span<std::byte> bytes) override {
    renew_key(sequence);
    if (encrypts_) return aead_.open(nonce_of(sequence), std::array{header}, tag, bytes);
    return aead_.open(nonce_of(sequence), std::array{header, Bytes(bytes)}, tag, {});
  }
  bool encrypts() const override { return encrypts_; }

 private:
  static Aead::Nonce nonce_of(std::uint64_t sequence) {
    Aead::Nonce nonce{};
    std::memcpy(nonce.data(), &sequence, sizeof(sequence));
    return nonce;
  }

  // Both ends count the same records, so they renew the key without a message.
  void renew_key(std::uint64_t sequence) {
    for (; n_renewals_ < sequence / kRecordsOfAKey; ++n_renewals_) {
      const Aead::Key old = key_;
      constexpr std::string_view kPurpose = "ciranda next key";
      hkdf_sha256(key_, old, {}, std::as_bytes(std::span(kPurpose)));
      aead_ = Aead(kind_.cipher, key_);
    }
  }

  SealKind kind_;
  Aead::Key key_;
  std::uint64_t n_renewals_ = 0;
  Aead aead_;
  bool encrypts_;
};

class ChecksumSeal final : public Seal {
 public:
  Tag seal(std::uint64_t sequence, Bytes /*header*/, Parts parts, std::byte* /*out*/) override {
    std::uint32_t sum = crc32c_of(sequence);
    for (const Bytes part : parts) sum = crc32c(part, sum);
    return tag_of(sum);
  }
  bool opens(std::uint64_t sequence, Bytes /*header*/, const Tag& tag, std::span<std::byte> bytes) override {
    return tag == tag_of(crc32c(bytes, crc32c_of(sequence)));
  }

 private:
  static Tag tag_of(std::uint32_t sum) {
    Tag tag{};
    std::memcpy(tag.data(), &sum, sizeof(sum));
    return tag;
  }
};

class NoSeal final : public Seal {
 public:
  Tag seal(std::uint64_t /*sequence*/, Bytes /*header*/, Parts /*parts*/, std::byte* /*out*/) override { return {}; }
  bool opens(std::uint64_t /*sequence*/, Bytes /*header*/, const Tag& /*tag*/,
             std::span<std::byte> /*bytes*/) override {
    return true;
  }
  std::uint32_t checksum_of(std::uint64_t /*sequence*/, Bytes /*header*/) const override { return 0; }
};

}  // namespace

std::uint32_t Seal::checksum_of(std::uint64_t sequence, Bytes header) const {
  return crc32c(header, crc32c_of(sequence));
}

WireLevel wire_level_named(std::string_view name) {
  if (name == "encrypt") return WireLevel::kEncrypt;
  if (name == "check") return WireLevel::kCheck;
  return name == "none" ? WireLevel::kNone : WireLevel::kAuthenticate;
}

std::unique_ptr<Seal> make_seal(SealKind kind, const Aead::Key& key) {
  switch (kind.level) {
    case WireLevel::kCheck: return std::make_unique<ChecksumSeal>();
    case WireLevel::kNone: return std::make_unique<NoSeal>();
    case WireLevel::kEncrypt:
    case WireLevel::kAuthenticate: break;
  }
  return std::make_unique<KeyedSeal>(kind, key);
}

}  // namespace ciranda
