#include "base/copy_bytes.hpp"

#include <algorithm>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ciranda {

// ThreadSanitizer sees no stores past the caches: it gets the plain copies below.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
namespace {

constexpr std::size_t kBlockBytes = 128;

// Keeps compilers from recognizing a loop as memcpy, and calling that.
inline void no_memcpy() { asm volatile("" : : : "memory"); }  // NOLINT(hicpp-no-assembler)

// Each returns how many bytes it has left: less than a block.

[[gnu::target("avx")]] std::size_t copy_by_32(std::byte* to, const std::byte* from, std::size_t n_bytes) {
  for (; n_bytes >= kBlockBytes; n_bytes -= kBlockBytes, to += kBlockBytes, from += kBlockBytes) {
    const auto* source = reinterpret_cast<const __m256i*>(from);
    auto* target = reinterpret_cast<__m256i*>(to);
    const __m256i a = _mm256_loadu_si256(source);
    const __m256i b = _mm256_loadu_si256(source + 1);
    const __m256i c = _mm256_loadu_si256(source + 2);
    const __m256i d = _mm256_loadu_si256(source + 3);
    _mm256_storeu_si256(target, a);
    _mm256_storeu_si256(target + 1, b);
    _mm256_storeu_si256(target + 2, c);
    _mm256_storeu_si256(target + 3, d);
    no_memcpy();
  }
  return n_bytes;
}

template <bool kPastCaches>
std::size_t copy_by_16(std::byte* to, const std::byte* from, std::size_t n_bytes) {
  for (; n_bytes >= kBlockBytes; n_bytes -= kBlockBytes, to += kBlockBytes, from += kBlockBytes) {
    const auto* source = reinterpret_cast<const __m128i*>(from);
    auto* target = reinterpret_cast<__m128i*>(to);
    for (std::size_t i = 0; i < kBlockBytes / sizeof(__m128i); ++i) {
      const __m128i value = _mm_loadu_si128(source + i);
      kPastCaches ? _mm_stream_si128(target + i, value) : _mm_storeu_si128(target + i, value);
    }
    no_memcpy();
  }
  return n_bytes;
}

}  // namespace

void copy_by_vectors(std::byte* to, const std::byte* from, std::size_t n_bytes) {
  static const bool has_avx = __builtin_cpu_supports("avx") != 0;
  const std::size_t n_left = has_avx ? copy_by_32(to, from, n_bytes) : copy_by_16<false>(to, from, n_bytes);
  const std::size_t n_done = n_bytes - n_left;
  std::memcpy(to + n_done, from + n_done, n_left);
}

void copy_past_caches(std::byte* to, const std::byte* from, std::size_t n_bytes) {
  const auto n_before_block = static_cast<std::size_t>(-reinterpret_cast<std::intptr_t>(to)) % kBlockBytes;
  const std::size_t n_head = std::min(n_before_block, n_bytes);
  copy_bytes(to, from, n_head);
  const std::size_t n_left = copy_by_16<true>(to + n_head, from + n_head, n_bytes - n_head);
  const std::size_t n_done = n_bytes - n_left;
  copy_bytes(to + n_done, from + n_done, n_left);
  _mm_sfence();  // a release store does not wait for such stores
}

#else

void copy_by_vectors(std::byte* to, const std::byte* from, std::size_t n_bytes) { std::memcpy(to, from, n_bytes); }
void copy_past_caches(std::byte* to, const std::byte* from, std::size_t n_bytes) { copy_bytes(to, from, n_bytes); }

#endif

}  // namespace ciranda
