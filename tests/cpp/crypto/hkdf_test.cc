#include "crypto/hkdf.hpp"

#include <gtest/gtest.h>

#include "crypto/hexadecimal.hpp"

namespace ciranda {
namespace {

std::string key_of(std::size_t n_bytes, std::string_view secret, std::string_view salt, std::string_view info) {
  std::vector<std::byte> key(n_bytes);
  hkdf_sha256(key, unhex(secret), unhex(salt), unhex(info));
  return hex(key);
}

std::string counting_hex(int first, int last) {
  std::vector<std::byte> bytes;
  for (int i = first; i <= last; ++i) bytes.push_back(static_cast<std::byte>(i));
  return hex(bytes);
}

// The test cases 1 to 3 of RFC 5869, appendix A.
TEST(HkdfSha256, OfRfc5869) {
  const std::string secret = "0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b";
  EXPECT_EQ(key_of(42, secret, counting_hex(0x00, 0x0c), counting_hex(0xf0, 0xf9)),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865");
  EXPECT_EQ(
      key_of(82, counting_hex(0x00, 0x4f), counting_hex(0x60, 0xaf), counting_hex(0xb0, 0xff)),
      "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09da3275600c2f"
      "09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87");
  EXPECT_EQ(key_of(42, secret, "", ""),
            "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8");
}

}  // namespace
}  // namespace ciranda
