// SHA-256 after FIPS 180-4; the comments name its symbols.
#include "membership/hmac.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace ciranda {
namespace {

constexpr std::size_t kBlockBytes = 64;

// K
constexpr std::array<std::uint32_t, 64> kRoundConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

class Sha256 {
 public:
  void update(std::span<const std::byte> bytes) {
    n_bytes_ += bytes.size();
    while (!bytes.empty()) {
      const std::size_t n = std::min(bytes.size(), kBlockBytes - n_pending_);
      std::copy_n(bytes.begin(), n, block_.begin() + static_cast<std::ptrdiff_t>(n_pending_));
      n_pending_ += n;
      bytes = bytes.subspan(n);
      if (n_pending_ == kBlockBytes) {
        compress();
        n_pending_ = 0;
      }
    }
  }

  Digest finish() {
    const std::uint64_t n_bits = n_bytes_ * 8;
    constexpr std::byte kEnd{0x80};
    constexpr std::byte kZero{0};
    update({&kEnd, 1});
    while (n_pending_ != kBlockBytes - sizeof(n_bits)) update({&kZero, 1});
    for (std::size_t i = 0; i < sizeof(n_bits); ++i) {
      const auto byte = static_cast<std::byte>(n_bits >> (56 - 8 * i));
      update({&byte, 1});
    }
    Digest digest{};
    for (std::size_t i = 0; i < digest.size(); ++i) {
      digest[i] = static_cast<std::byte>(hash_[i / 4] >> (24 - 8 * (i % 4)));
    }
    return digest;
  }

 private:
  // W
  std::array<std::uint32_t, 64> schedule() const {
    std::array<std::uint32_t, 64> words{};
    for (std::size_t t = 0; t < 16; ++t) {
      for (std::size_t i = 0; i < 4; ++i) words[t] = words[t] << 8 | std::to_integer<std::uint32_t>(block_[4 * t + i]);
    }
    for (std::size_t t = 16; t < 64; ++t) {
      const std::uint32_t x = words[t - 15];
      const std::uint32_t y = words[t - 2];
      const std::uint32_t s0 = std::rotr(x, 7) ^ std::rotr(x, 18) ^ (x >> 3);
      const std::uint32_t s1 = std::rotr(y, 17) ^ std::rotr(y, 19) ^ (y >> 10);
      words[t] = s1 + words[t - 7] + s0 + words[t - 16];
    }
    return words;
  }

  void compress() {
    const auto words = schedule();
    auto [a, b, c, d, e, f, g, h] = hash_;
    for (std::size_t t = 0; t < 64; ++t) {
      const std::uint32_t sum1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const std::uint32_t choice = (e & f) ^ (~e & g);
      const std::uint32_t t1 = h + sum1 + choice + kRoundConstants[t] + words[t];
      const std::uint32_t sum0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const std::uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
      h = g;
      g = f;
      f = e;
      e = d + t1;
      d = c;
      c = b;
      b = a;
      a = t1 + sum0 + majority;
    }
    const std::array<std::uint32_t, 8> added = {a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < added.size(); ++i) hash_[i] += added[i];
  }

  // H(0)
  std::array<std::uint32_t, 8> hash_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, kBlockBytes> block_{};
  std::size_t n_pending_ = 0;
  std::uint64_t n_bytes_ = 0;
};

}  // namespace

Digest sha256(std::initializer_list<std::span<const std::byte>> parts) {
  Sha256 hash;
  for (const auto part : parts) hash.update(part);
  return hash.finish();
}

Digest hmac_sha256(std::span<const std::byte> key, std::initializer_list<std::span<const std::byte>> parts) {
  std::array<std::byte, kBlockBytes> block{};
  if (key.size() > block.size()) {
    const Digest shorter = sha256({key});
    std::copy(shorter.begin(), shorter.end(), block.begin());
  } else {
    std::copy(key.begin(), key.end(), block.begin());
  }
  const auto masked = [&block](std::byte mask) {
    auto result = block;
    std::transform(result.begin(), result.end(), result.begin(), [mask](std::byte byte) { return byte ^ mask; });
    return result;
  };
  Sha256 inner;
  inner.update(masked(std::byte{0x36}));
  for (const auto part : parts) inner.update(part);
  return sha256({masked(std::byte{0x5c}), inner.finish()});
}

}  // namespace ciranda
