// Words of 64 bits that one thread writes, and others read without a lock. Called by ShownCalls and RecordRing.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace ciranda {

// Who sees the word also sees what the writer has stored before, so readers detect that an entry is being overwritten.
// A release store costs nothing on x86.
inline void put(std::atomic<std::uint64_t>& word, std::uint64_t value) { word.store(value, std::memory_order_release); }

// The first bytes of `text` as a word, filled up with zeros. Without a loop or a call, as memcpy() of an unknown length
// is.
inline std::uint64_t word_of(std::string_view text) {
  const auto piece = [&]<typename Piece>(std::size_t at, Piece value) {
    std::memcpy(&value, text.data() + at, sizeof value);
    return std::uint64_t{value} << 8 * at;
  };
  const std::size_t n = text.size();
  if (n >= 8) return piece(0, std::uint64_t{});
  if (n >= 4) return piece(0, std::uint32_t{}) | piece(n - 4, std::uint32_t{});
  if (n >= 2) return piece(0, std::uint16_t{}) | piece(n - 2, std::uint16_t{});
  return n == 1 ? piece(0, std::uint8_t{}) : 0;
}

// The last word is filled up with zeros.
inline void put_name(std::atomic<std::uint64_t>* words, std::string_view name) {
  while (!name.empty()) {
    put(*words++, word_of(name));
    name.remove_prefix(std::min(name.size(), sizeof(std::uint64_t)));
  }
}

}  // namespace ciranda
