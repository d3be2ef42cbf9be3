#include "crypto/digest.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "crypto/hexadecimal.hpp"

namespace ciranda {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string hmac(const std::string& key, const std::string& message) {
  return hex(hmac_sha256(bytes_of(key), {bytes_of(message)}));
}

std::string counting(int first, int last) {
  std::string text;
  for (int i = first; i <= last; ++i) {
    text += static_cast<char>(i);
  }
  return text;
}

TEST(Sha256, OfTheStandardsExamples) {
  EXPECT_EQ(hex(sha256({})), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256({bytes_of("abc")})), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256({bytes_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")})),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(sha256({bytes_of(std::string(1'000'000, 'a'))})),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PartsAreAsIfConcatenated) {
  for (std::size_t n = 0; n < 200; n += 7) {
    const std::string text(n, 'x');
    for (std::size_t cut = 0; cut <= n; cut += 5) {
      EXPECT_EQ(sha256({bytes_of(text)}), sha256({bytes_of(text.substr(0, cut)), bytes_of(text.substr(cut))}));
    }
  }
}

// The test cases of RFC 4231, in its order.
TEST(HmacSha256, OfRfc4231) {
  EXPECT_EQ(hmac(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hmac("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hmac(std::string(20, '\xaa'), std::string(50, '\xdd')),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  EXPECT_EQ(hmac(counting(1, 25), std::string(50, '\xcd')),
            "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
  EXPECT_EQ(hmac(std::string(20, '\x0c'), "Test With Truncation").substr(0, 32), "a3b6167473100ee06e0c796c2955552b");
  EXPECT_EQ(hmac(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(hmac(std::string(131, '\xaa'),
                 "This is a test using a larger than block-size key and a larger than block-size data. The key needs "
                 "to be hashed before being used by the HMAC algorithm."),
            "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST(Digest, ComparesAllBytes) {
  const Digest digest = sha256({bytes_of("x")});
  EXPECT_TRUE(equal_in_constant_time(digest, digest));
  for (std::size_t i = 0; i < digest.size(); ++i) {
    Digest other = digest;
    other[i] ^= std::byte{1};
    EXPECT_FALSE(equal_in_constant_time(digest, other)) << "byte " << i;
  }
}

}  // namespace
}  // namespace ciranda
