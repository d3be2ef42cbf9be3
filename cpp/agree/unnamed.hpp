// Calls without a name are numbered as each rank makes them (agree/auto_names.hpp), and agreed on by the log under
// that name, in full. In between, ranks may meet for them without names: for the next of these calls, whatever it is,
// at one place for all of them. What each contributes says which call it is, by its number and by that of a signature
// that was agreed on in such a call before; the ranks go on with it only if all say the same. Pure.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "agree/round_places.hpp"
#include "call/call.hpp"
#include "call/request.hpp"

namespace ciranda {

inline constexpr std::string_view kUnnamed = "noname";

// As a name that the log has: "noname.12".
inline bool is_unnamed(std::string_view name) {
  return name.starts_with(kUnnamed) && name.substr(kUnnamed.size()).starts_with('.');
}

// REQUIRES: is_unnamed(name).
inline std::uint64_t number_of(std::string_view name) {
  std::uint64_t number = 0;
  std::from_chars(name.data() + kUnnamed.size() + 1, name.data() + name.size(), number);
  return number;
}

// The signatures with which calls without a name were agreed on, the last so many. All members learn the same, in the
// order of the log, and where it opens a round: who is at that round knows these.
class UnnamedSignatures {
 public:
  static constexpr std::size_t kMostBytes = 4 << 10;  // that a member contributes, where it is not in a buffer
  static constexpr std::size_t kHeadBytes = 64;       // before it in an area: which call it is of
  static constexpr std::size_t kMost = 64;

  // Not where members have different numbers of rows, even of no bytes: each would learn a signature of its own.
  // `has_buffers`: as for room_for().
  static bool may_meet(const Signature& signature, const FirstDims* first_dims, bool has_buffers) {
    const auto room = room_for(signature, first_dims, has_buffers);
    return room && room->is_exact() && !info(signature.collective).takes_splits && are_alike(first_dims) &&
           (room->is_in_buffer || room->n_exact_bytes <= kMostBytes);
  }

  // REQUIRES: may_meet(signature, first_dims).
  void learn(const Signature& signature, std::shared_ptr<const FirstDims> first_dims) {
    if (find(signature)) return;
    Known known{signature, std::move(first_dims)};
    if (known_.size() < kMost) {
      known_.push_back(std::move(known));
    } else {
      known_[oldest_] = std::move(known);
      oldest_ = (oldest_ + 1) % kMost;
    }
  }

  // None: it was not learnt.
  std::optional<std::uint32_t> find(const Signature& signature) const {
    return find_if([&](const Signature& known) { return known == signature; });
  }
  std::optional<std::uint32_t> find(const Call& call) const {
    return find_if([&](const Signature& known) { return is_of(known, call); });
  }
  // Null where they cannot differ; valid until the next is learnt. REQUIRES: it was found.
  const FirstDims* first_dims_of(std::uint32_t signature) const { return known_[signature].first_dims.get(); }

 private:
  struct Known {
    Signature signature;
    std::shared_ptr<const FirstDims> first_dims;
  };

  static bool are_alike(const FirstDims* first_dims) {
    return first_dims == nullptr || std::ranges::all_of(*first_dims, [](const auto& by_rank) {
             return std::ranges::all_of(by_rank, [&](auto n_rows) { return n_rows == by_rank.front(); });
           });
  }

  // Most programs make the same calls in the same order: the one after the last is looked at first.
  template <typename Predicate>
  std::optional<std::uint32_t> find_if(Predicate is_wanted) const {
    for (std::size_t i = 0; i < known_.size(); ++i) {
      const std::size_t at = (next_ + i) % known_.size();
      if (!is_wanted(known_[at].signature)) continue;
      next_ = at + 1 == known_.size() ? 0 : at + 1;
      return static_cast<std::uint32_t>(at);
    }
    return std::nullopt;
  }

  std::vector<Known> known_;
  std::size_t oldest_ = 0;  // once there are kMost
  mutable std::size_t next_ = 0;
};

}  // namespace ciranda
