#include "base/crc32c.hpp"

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace ciranda {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // bit-reversed
constexpr std::size_t kWord = sizeof(std::uint64_t);

using Table = std::array<std::uint32_t, 256>;

// tables[k][b]: the remainder of byte b followed by k zero bytes.
constexpr std::array<Table, kWord> make_tables() {
  std::array<Table, kWord> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) remainder = remainder >> 1 ^ ((remainder & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = remainder;
  }
  for (std::size_t k = 1; k < kWord; ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[k - 1][byte];
      tables[k][byte] = before >> 8 ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

constexpr std::array<Table, kWord> kTables = make_tables();

std::uint64_t word_at(const std::byte* at) {
  std::uint64_t word = 0;
  std::memcpy(&word, at, kWord);
  return word;
}

// Maps a remainder to the remainder after a fixed number of zero bytes: one table for each of its four bytes.
using Shift = std::array<Table, 4>;

constexpr std::uint32_t apply(const Shift& shift, std::uint32_t remainder) {
  return shift[0][remainder & 0xff] ^ shift[1][remainder >> 8 & 0xff] ^ shift[2][remainder >> 16 & 0xff] ^
         shift[3][remainder >> 24];
}

constexpr Shift make_shift(std::size_t n_zeros) {
  // The map is linear, so its values for single bits give those for bytes.
  std::array<std::uint32_t, 32> of_bit{};
  for (std::size_t bit = 0; bit < 32; ++bit) {
    std::uint32_t remainder = std::uint32_t{1} << bit;
    for (std::size_t i = 0; i < n_zeros; ++i) remainder = remainder >> 8 ^ kTables[0][remainder & 0xff];
    of_bit[bit] = remainder;
  }
  Shift shift{};
  for (std::size_t place = 0; place < 4; ++place) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      for (std::size_t bit = 0; bit < 8; ++bit) {
        if ((byte >> bit & 1) != 0) shift[place][byte] ^= of_bit[8 * place + bit];
      }
    }
  }
  return shift;
}

#if defined(__x86_64__)
#define CIRANDA_CRC_TARGET __attribute__((target("sse4.2")))
CIRANDA_CRC_TARGET std::uint32_t step_word(std::uint32_t sum, const std::byte* at) {
  return static_cast<std::uint32_t>(_mm_crc32_u64(sum, word_at(at)));
}
CIRANDA_CRC_TARGET std::uint32_t step_byte(std::uint32_t sum, std::byte byte) {
  return _mm_crc32_u8(sum, std::to_integer<std::uint8_t>(byte));
}
bool has_instruction() { return __builtin_cpu_supports("sse4.2") != 0; }
#elif defined(__aarch64__) && defined(__linux__)
#define CIRANDA_CRC_TARGET __attribute__((target("arch=armv8-a+crc")))
CIRANDA_CRC_TARGET std::uint32_t step_word(std::uint32_t sum, const std::byte* at) {
  return __builtin_aarch64_crc32cx(sum, word_at(at));
}
CIRANDA_CRC_TARGET std::uint32_t step_byte(std::uint32_t sum, std::byte byte) {
  return __builtin_aarch64_crc32cb(sum, std::to_integer<std::uint8_t>(byte));
}
bool has_instruction() { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
#endif

#if defined(CIRANDA_CRC_TARGET)
// The instruction takes three cycles, but one can start in each cycle, so three blocks are processed at once.
constexpr std::size_t kBlock = 1024;
constexpr Shift kOverBlock = make_shift(kBlock);

CIRANDA_CRC_TARGET std::uint32_t by_instruction(std::span<const std::byte> bytes, std::uint32_t sum) {
  const std::byte* at = bytes.data();
  std::size_t n_left = bytes.size();
  for (; n_left >= 3 * kBlock; n_left -= 3 * kBlock, at += 3 * kBlock) {
    std::array<std::uint32_t, 3> sums{sum, 0, 0};
    for (std::size_t i = 0; i < kBlock; i += kWord) {
      sums[0] = step_word(sums[0], at + i);
      sums[1] = step_word(sums[1], at + kBlock + i);
      sums[2] = step_word(sums[2], at + 2 * kBlock + i);
    }
    sum = apply(kOverBlock, apply(kOverBlock, sums[0]) ^ sums[1]) ^ sums[2];
  }
  for (; n_left >= kWord; n_left -= kWord, at += kWord) sum = step_word(sum, at);
  for (; n_left > 0; --n_left, ++at) sum = step_byte(sum, *at);
  return sum;
}
#endif

std::uint32_t by_tables(std::span<const std::byte> bytes, std::uint32_t sum) {
  for (; bytes.size() >= kWord; bytes = bytes.subspan(kWord)) {
    const std::uint64_t word = word_at(bytes.data()) ^ sum;
    sum = 0;
    for (std::size_t i = 0; i < kWord; ++i) sum ^= kTables[kWord - 1 - i][word >> 8 * i & 0xff];
  }
  for (const std::byte byte : bytes) sum = sum >> 8 ^ kTables[0][(sum ^ std::to_integer<std::uint32_t>(byte)) & 0xff];
  return sum;
}

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) {
#if defined(CIRANDA_CRC_TARGET)
  static const bool kHasInstruction = has_instruction();
  if (kHasInstruction) return ~by_instruction(bytes, ~before);
#endif
  return ~by_tables(bytes, ~before);
}

std::uint32_t detail::crc32c_by_tables(std::span<const std::byte> bytes, std::uint32_t before) {
  return ~by_tables(bytes, ~before);
}

}  // namespace ciranda
