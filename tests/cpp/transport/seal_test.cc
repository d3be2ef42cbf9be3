#include "transport/seal.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

namespace ciranda {
namespace {

Seal::Bytes bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

struct Sealed {
  Seal::Tag tag;
  std::vector<std::byte> bytes;
};

Sealed sealed_by(Seal& seal, std::uint64_t sequence, const std::string& text) {
  Sealed made;
  made.bytes.assign(bytes_of(text).begin(), bytes_of(text).end());
  const std::array<Seal::Bytes, 1> parts{bytes_of(text)};
  made.tag = seal.seal(sequence, bytes_of("header"), parts, made.bytes.data());
  return made;
}

TEST(Seal, LevelsHaveNames) {
  EXPECT_EQ(wire_level_named("encrypt"), WireLevel::kEncrypt);
  EXPECT_EQ(wire_level_named("authenticate"), WireLevel::kAuthenticate);
  EXPECT_EQ(wire_level_named(""), WireLevel::kAuthenticate);
  EXPECT_EQ(wire_level_named("check"), WireLevel::kCheck);
  EXPECT_EQ(wire_level_named("none"), WireLevel::kNone);
}

TEST(Seal, EveryRecordHasANonceOfItsOwn) {
  const std::string text(32, 'x');
  for (const WireLevel level : {WireLevel::kAuthenticate, WireLevel::kEncrypt}) {
    const auto seal = make_seal({level, {}}, Aead::Key{});
    EXPECT_NE(sealed_by(*seal, 0, text).tag, sealed_by(*seal, 1, text).tag);
    EXPECT_EQ(sealed_by(*seal, 0, text).bytes != sealed_by(*seal, 1, text).bytes, level == WireLevel::kEncrypt);
  }
}

TEST(Seal, AKeyIsReplacedBeforeItsLimit) {
  const std::string text = "some text";
  for (const Cipher cipher : {Cipher::kAes256Gcm, Cipher::kChaCha20Poly1305}) {
    const SealKind kind{WireLevel::kEncrypt, cipher};
    const auto writer = make_seal(kind, Aead::Key{});
    const auto reader = make_seal(kind, Aead::Key{});
    const auto late = make_seal(kind, Aead::Key{});
    for (const std::uint64_t sequence : {std::uint64_t{0}, Seal::kRecordsOfAKey - 1, Seal::kRecordsOfAKey,
                                         Seal::kRecordsOfAKey + 1, 5 * Seal::kRecordsOfAKey}) {
      Sealed record = sealed_by(*writer, sequence, text);
      EXPECT_FALSE(late->opens(Seal::kRecordsOfAKey - 2, bytes_of("header"), record.tag, record.bytes));
      record = sealed_by(*writer, sequence, text);
      ASSERT_TRUE(reader->opens(sequence, bytes_of("header"), record.tag, record.bytes)) << sequence;
      EXPECT_TRUE(std::equal(record.bytes.begin(), record.bytes.end(), bytes_of(text).begin()));
    }
    // Another key, not just another nonce: what the first key made of the same sequence.
    Aead first(cipher, Aead::Key{});
    Aead::Nonce nonce{};
    std::memcpy(nonce.data(), &Seal::kRecordsOfAKey, sizeof(Seal::kRecordsOfAKey));
    const auto again = make_seal(kind, Aead::Key{});
    Sealed record = sealed_by(*again, Seal::kRecordsOfAKey, text);
    EXPECT_FALSE(first.open(nonce, std::array{bytes_of("header")}, record.tag, record.bytes));
    const auto before = make_seal(kind, Aead::Key{});
    record = sealed_by(*before, Seal::kRecordsOfAKey - 1, text);
    const std::uint64_t sequence = Seal::kRecordsOfAKey - 1;
    std::memcpy(nonce.data(), &sequence, sizeof(sequence));
    EXPECT_TRUE(first.open(nonce, std::array{bytes_of("header")}, record.tag, record.bytes));
  }
}

}  // namespace
}  // namespace ciranda
