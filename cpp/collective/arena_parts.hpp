// ArenaParts: the chunks of a shared arena in parts, of which a counter tells how many a member has done with. A chunk
// has kParts, each in its part of the chunk's slot; part p is of chunk p / kParts.
//
// Invariant: a part may be packed once every member has consumed the one that used the same part of the same slot, two
// chunks before. Who does with a whole chunk at a time publishes the last part of each. Parts that the last chunk of a
// collective does not need are left out: a counter that is at a later part speaks for all before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/arena.hpp"

namespace ciranda {

class ArenaParts {
 public:
  using Counter = SharedArena::Counter;

  static constexpr std::uint64_t kParts = 4;

  explicit ArenaParts(const SharedArena& arena) : arena_(arena) {}

  static std::uint64_t first_of(std::uint64_t chunk) { return chunk * kParts; }
  static std::uint64_t last_of(std::uint64_t chunk) { return first_of(chunk) + kParts - 1; }

  std::size_t n_bytes() const { return arena_.slot_bytes() / kParts; }  // of a part
  std::byte* place(int member, std::uint64_t part) const {
    return arena_.slot(member, part / kParts) + part % kParts * n_bytes();
  }

  bool is_free(std::uint64_t part) const {
    return part < kPartsInSlots || have_all(Counter::kConsumed, part - kPartsInSlots);
  }
  void publish(Counter which, std::uint64_t part) const {
    arena_.counter(arena_.member(), which).store(part + 1, std::memory_order_release);
  }
  bool has(int member, Counter which, std::uint64_t part) const {
    return arena_.counter(member, which).load(std::memory_order_acquire) > part;
  }
  bool have_all(Counter which, std::uint64_t part) const {
    for (int member = 0; member < arena_.n_members(); ++member) {
      if (!has(member, which, part)) return false;
    }
    return true;
  }

  // The members that have not published `which` for the part.
  std::vector<int> lacking(Counter which, std::uint64_t part) const {
    std::vector<int> members;
    for (int member = 0; member < arena_.n_members(); ++member) {
      if (!has(member, which, part)) members.push_back(member);
    }
    return members;
  }
  // The members that keep a part from being free.
  std::vector<int> holding(std::uint64_t part) const {
    return part < kPartsInSlots ? std::vector<int>{} : lacking(Counter::kConsumed, part - kPartsInSlots);
  }

 private:
  static constexpr std::uint64_t kPartsInSlots = 2 * kParts;

  const SharedArena& arena_;
};

}  // namespace ciranda
