#include "base/copy_bytes.hpp"

#include <array>
#include <atomic>
#include <chrono>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace ciranda {
// Sanitizers do not see the reads and writes of "rep movsb", so builds with a sanitizer use plain copies.
#if defined(__x86_64__) && !defined(CIRANDA_SANITIZED)
namespace {

// Processors without this feature (Intel's before 2013, AMD's before 2020) execute "rep movsb" almost byte by byte.
bool has_fast_strings() {
  constexpr unsigned kEnhancedRepMovsb = 1U << 9;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ebx & kEnhancedRepMovsb) != 0;
}

void copy_by_string(std::byte* to, const std::byte* from, std::size_t n_bytes) {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n_bytes) : : "memory");  // NOLINT(hicpp-no-assembler)
}

// Streams whole cache lines to memory; the incomplete first and last line are copied normally.
void copy_past_caches(std::byte* to, const std::byte* from, std::size_t n_bytes) {
  constexpr std::size_t kLineBytes = 64;
  const std::size_t n_before = (kLineBytes - reinterpret_cast<std::uintptr_t>(to) % kLineBytes) % kLineBytes;
  std::memcpy(to, from, n_before);
  std::size_t done = n_before;
  for (; n_bytes - done >= kLineBytes; done += kLineBytes) {
    const auto* source = reinterpret_cast<const __m128i*>(from + done);
    auto* target = reinterpret_cast<__m128i*>(to + done);
    for (std::size_t i = 0; i < kLineBytes / sizeof(__m128i); ++i) {
      _mm_stream_si128(target + i, _mm_loadu_si128(source + i));
    }
  }
  std::memcpy(to + done, from + done, n_bytes - done);
  _mm_sfence();  // streaming stores are unordered: without this, even a later release store may become visible first
}

}  // namespace

void copy_by(StagingCopy technique, std::byte* to, const std::byte* from, std::size_t n_bytes) {
  static const bool is_fast = has_fast_strings();
  if (n_bytes >= kLeastStagingBytes && technique == StagingCopy::kPastCaches)
    return copy_past_caches(to, from, n_bytes);
  if (n_bytes >= kLeastStagingBytes && is_fast) return copy_by_string(to, from, n_bytes);
  copy_bytes(to, from, n_bytes);
}

#else

void copy_by(StagingCopy /*technique*/, std::byte* to, const std::byte* from, std::size_t n_bytes) {
  copy_bytes(to, from, n_bytes);
}

#endif

namespace {

constexpr std::size_t kLeastTrialBytes = 2 * kLeastStagingBytes;  // smaller halves would be copied by copy_bytes()

// Copies half of the bytes with each technique, and times both. The techniques take turns in being first.
void copy_in_trial(std::byte* to, const std::byte* from, std::size_t n_bytes) {
  static std::atomic<unsigned> n_halves{0};
  constexpr std::size_t kLineBytes = 64;
  const std::size_t half = n_bytes / 2 / kLineBytes * kLineBytes;
  const std::size_t first = n_halves.load() / 2 % 2;
  std::array<StagingChoice::Duration, kStagingCopies.size()> took{};
  std::size_t done = 0;
  for (const std::size_t technique : {first, 1 - first}) {
    const auto begin = std::chrono::steady_clock::now();
    copy_by(static_cast<StagingCopy>(technique), to + done, from + done, half);
    n_halves.fetch_add(1);  // also waits for the core's store buffer, which may still hold a few KiB
    took[technique] = std::chrono::steady_clock::now() - begin;
    done += half;
  }
  copy_bytes(to + done, from + done, n_bytes - done);
  staging_choice().note_trial(took[0], took[1]);
}

}  // namespace

StagingChoice& staging_choice() {
  static StagingChoice choice;
  return choice;
}

void copy_much_for_others(std::byte* to, const std::byte* from, std::size_t n_bytes, ReadLast read_last) {
  if (read_last == ReadLast::kHere) return copy_by(StagingCopy::kCached, to, from, n_bytes);
  StagingChoice& choice = staging_choice();
  if (n_bytes >= kLeastTrialBytes && choice.is_trial_due()) return copy_in_trial(to, from, n_bytes);
  copy_by(choice.current(), to, from, n_bytes);
}

}  // namespace ciranda
