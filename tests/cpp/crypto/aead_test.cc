#include "crypto/aead.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "crypto/hexadecimal.hpp"

namespace ciranda {
namespace {

struct Vector {
  Cipher cipher;
  std::string_view key, nonce, associated, plain, sealed, tag;
};

constexpr std::string_view kGcmPlain =
    "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba"
    "6"
    "37b391aafd255";
constexpr std::string_view kGcmSealed =
    "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abc"
    "c"
    "9f662898015ad";
constexpr std::string_view kGcmKey = "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308";

// Test cases 13 to 16 of "The Galois/Counter Mode of Operation" (McGrew, Viega), and that of RFC 8439, 2.8.2.
constexpr std::array kVectors{
    Vector{Cipher::kAes256Gcm, "0000000000000000000000000000000000000000000000000000000000000000",
           "000000000000000000000000", "", "", "", "530f8afbc74536b9a963b4f1c4cb738b"},
    Vector{Cipher::kAes256Gcm, "0000000000000000000000000000000000000000000000000000000000000000",
           "000000000000000000000000", "", "00000000000000000000000000000000", "cea7403d4d606b6e074ec5d3baf39d18",
           "d0d1c8a799996bf0265b98b5d48ab919"},
    Vector{Cipher::kAes256Gcm, kGcmKey, "cafebabefacedbaddecaf888", "", kGcmPlain, kGcmSealed,
           "b094dac5d93471bdec1a502270e3cc6c"},
    Vector{Cipher::kAes256Gcm, kGcmKey, "cafebabefacedbaddecaf888", "feedfacedeadbeeffeedfacedeadbeefabaddad2",
           kGcmPlain.substr(0, 120), kGcmSealed.substr(0, 120), "76fc6ece0f4e1768cddf8853bb2d551b"},
    Vector{
        Cipher::kChaCha20Poly1305, "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f",
        "070000004041424344454647", "50515253c0c1c2c3c4c5c6c7",
        "4c616469657320616e642047656e746c656d656e206f662074686520636c617373206f66202739393a204966204920636f756c64206f66"
        "66657220796f75206f6e6c79206f6e652074697020666f7220746865206675747572652c2073756e73637265656e20776f756c64206265"
        "2069742e",
        "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d63dbea45e8ca9671282fafb69da92728b1a71de0a9e06"
        "0b2905d6a5b67ecd3b3692ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc3ff4def08e4b7a9de576d26586"
        "cec64b6116",
        "1ae10b594f09e26a7e902ecbd0600691"},
};

template <typename Array>
Array array_of(std::string_view text) {
  Array array{};
  const auto bytes = unhex(text);
  EXPECT_EQ(bytes.size(), array.size());
  std::copy_n(bytes.begin(), std::min(bytes.size(), array.size()), array.begin());
  return array;
}

TEST(Aead, OfPublishedVectors) {
  for (const Vector& each : kVectors) {
    const auto key = array_of<Aead::Key>(each.key);
    const auto nonce = array_of<Aead::Nonce>(each.nonce);
    const auto associated = unhex(each.associated);
    const auto plain = unhex(each.plain);
    Aead aead(each.cipher, key);
    for (const std::size_t cut : {std::size_t{0}, plain.size() / 3, plain.size()}) {  // in parts as if concatenated
      std::vector<std::byte> bytes(plain.size());
      const std::array<std::span<const std::byte>, 2> parts{std::span(plain).first(cut), std::span(plain).subspan(cut)};
      const std::size_t half = associated.size() / 2;
      const std::array<std::span<const std::byte>, 2> around{std::span(associated).first(half),
                                                             std::span(associated).subspan(half)};
      const Aead::Tag tag = aead.seal(nonce, around, parts, bytes.data());
      EXPECT_EQ(hex(bytes), each.sealed);
      EXPECT_EQ(hex(tag), each.tag);
      ASSERT_TRUE(aead.open(nonce, around, tag, bytes));
      EXPECT_EQ(bytes, plain);
    }
  }
}

TEST(Aead, EveryBitIsChecked) {
  for (const Cipher cipher : {Cipher::kAes256Gcm, Cipher::kChaCha20Poly1305}) {
    const std::vector<std::byte> plain(19, std::byte{5});
    const std::vector<std::byte> associated(12, std::byte{6});
    const auto opens_with = [&](std::size_t changed) {
      Aead::Key key{};
      Aead::Nonce nonce{};
      Aead sealing(cipher, key);
      std::vector<std::byte> bytes(plain.size());
      const std::array<std::span<const std::byte>, 1> parts{plain};
      Aead::Tag tag = sealing.seal(nonce, std::array{std::span<const std::byte>(associated)}, parts, bytes.data());
      auto also = associated;
      for (const std::span<std::byte> part :
           std::initializer_list<std::span<std::byte>>{key, nonce, also, bytes, tag}) {
        if (changed / 8 < part.size()) {
          part[changed / 8] ^= static_cast<std::byte>(1U << changed % 8);
          break;
        }
        changed -= 8 * part.size();
      }
      return Aead(cipher, key).open(nonce, std::array{std::span<const std::byte>(also)}, tag, bytes);
    };
    constexpr std::size_t kBits = 8 * (32 + 12 + 12 + 19 + 16);
    for (std::size_t bit = 0; bit < kBits; ++bit) ASSERT_FALSE(opens_with(bit)) << bit;
    EXPECT_TRUE(opens_with(kBits));
  }
}

}  // namespace
}  // namespace ciranda
