#include "crypto/key_agreement.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "crypto/hexadecimal.hpp"

namespace ciranda {
namespace {

CurveKey key_of(std::string_view text) {
  CurveKey key{};
  std::ranges::copy(unhex(text), key.begin());
  return key;
}

// The examples of RFC 7748, section 5.2: the first, and one iteration.
TEST(KeyAgreement, OfRfc7748) {
  const CurveKey scalar = key_of("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4");
  const CurveKey point = key_of("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c");
  EXPECT_EQ(hex(agreed_key(scalar, point)), "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552");
  const CurveKey nine{std::byte{9}};
  EXPECT_EQ(hex(public_key_of(nine)), "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079");
}

TEST(KeyAgreement, IsTheSameForBoth) {
  const CurveKey one = new_private_key();
  const CurveKey other = new_private_key();
  EXPECT_EQ(agreed_key(one, public_key_of(other)), agreed_key(other, public_key_of(one)));
}

TEST(KeyAgreement, HasNewKeysEachTime) { EXPECT_NE(new_private_key(), new_private_key()); }

TEST(KeyAgreement, RefusesAKeyThatGivesOthersTheSecret) {
  EXPECT_THROW(agreed_key(new_private_key(), CurveKey{}), std::invalid_argument);
}

}  // namespace
}  // namespace ciranda
