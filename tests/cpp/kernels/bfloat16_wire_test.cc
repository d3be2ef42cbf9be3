#include "kernels/bfloat16_wire.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "kernels/half.hpp"
#include "kernels/reference.hpp"

namespace ciranda::kernels {
namespace {

using testing::Bytes;

float float_at(const Bytes& bytes, std::size_t i) {
  float value = 0;
  std::memcpy(&value, bytes.data() + i * sizeof(float), sizeof(float));
  return value;
}

// Any bit pattern, every length up to some vectors, at odd addresses: nothing beside the result is written.
TEST(BFloat16WireTest, AllLevelsDoWhatTheScalarConversionsDo) {
  constexpr std::size_t kMost = 300;
  const Bytes input = testing::make_inputs(DataType::kFloat32, 1, kMost, 5).front();
  Bytes shifted(input.size() + 1);
  std::memcpy(shifted.data() + 1, input.data(), input.size());
  for (const SimdLevel level : testing::levels()) {
    const testing::ScopedLevel scoped(level);
    for (std::size_t count = 0; count <= kMost; count = count < 70 ? count + 1 : count + 23) {
      Bytes packed(2 * count + 1, std::byte{0xAB});
      Bytes rounded(4 * count + 1, std::byte{0xAB});
      pack_bfloat16(shifted.data() + 1, packed.data(), count);
      round_to_bfloat16(shifted.data() + 1, rounded.data(), count);
      ASSERT_EQ(packed.back(), std::byte{0xAB});
      ASSERT_EQ(rounded.back(), std::byte{0xAB});
      for (std::size_t i = 0; i < count; ++i) {
        const std::uint16_t expected = bfloat16_from_float(float_at(input, i));
        std::uint16_t half = 0;
        std::memcpy(&half, packed.data() + 2 * i, sizeof(half));
        ASSERT_EQ(half, expected) << to_string(level) << " " << i << " of " << count;
        ASSERT_EQ(std::bit_cast<std::uint32_t>(float_at(rounded, i)), std::uint32_t{expected} << 16);
      }
      Bytes unpacked(4 * count + 1, std::byte{0xAB});
      unpack_bfloat16(packed.data(), unpacked.data(), count);
      ASSERT_EQ(unpacked, rounded);
      Bytes in_place(input.begin(), input.begin() + static_cast<std::ptrdiff_t>(4 * count));
      round_to_bfloat16(in_place.data(), in_place.data(), count);
      ASSERT_EQ(in_place, Bytes(rounded.begin(), rounded.end() - 1));
    }
  }
}

}  // namespace
}  // namespace ciranda::kernels
