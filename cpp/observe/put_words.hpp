// Words of 64 bits that one thread writes, and others read without a lock. Called by PendingTable and RecordRing.
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

// The last word is filled up with zeros.
inline void put_name(std::atomic<std::uint64_t>* words, std::string_view name) {
  while (!name.empty()) {
    const std::size_t n_bytes = std::min(name.size(), sizeof(std::uint64_t));
    std::uint64_t word = 0;
    std::memcpy(&word, name.data(), n_bytes);
    put(*words++, word);
    name.remove_prefix(n_bytes);
  }
}

}  // namespace ciranda
