// Calls without a name. Each rank numbers them as it makes them (agree/auto_names.hpp); the log agrees on them by that
// number and their full signature. Between such agreements, ranks may execute them in direct rounds, at one place for
// all of them. Each contribution states which call it is, by the call's number and by that of a signature agreed on in
// an earlier such call. The ranks execute the call only if all contributions state the same. Called by Coordinator,
// UnnamedRounds, Participant, AutoNames, RoundMemory, RoundsInMemory and prepare(); made by Lanes; pure.
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

#include "agree/round_rooms.hpp"
#include "call/call.hpp"
#include "call/request.hpp"

namespace ciranda {

inline constexpr std::string_view kUnnamed = "noname";

// True for the names that the log uses for calls without a name: "noname.12".
inline bool is_unnamed(std::string_view name) {
  return name.starts_with(kUnnamed) && name.substr(kUnnamed.size()).starts_with('.');
}

// REQUIRES: is_unnamed(name).
inline std::uint64_t number_of(std::string_view name) {
  std::uint64_t number = 0;
  std::from_chars(name.data() + kUnnamed.size() + 1, name.data() + name.size(), number);
  return number;
}

// The last kMost signatures with which calls without a name were agreed on. All members learn the same ones, in the
// order of the log, whenever the log opens a round; so a member that has arrived at that round knows them.
class UnnamedSignatures {
 public:
  static constexpr std::size_t kMostBytes = 4 << 10;  // a member's contribution outside buffers
  static constexpr std::size_t kHeadBytes = 64;       // precedes the contribution in an area, and identifies the call
  static constexpr std::size_t kMost = 64;

  // False if members have different numbers of rows, even of no bytes, because each would learn another signature.
  // `has_buffers`: as for room_for().
  static bool may_go_direct(const Signature& signature, const FirstDims* first_dims, bool has_buffers) {
    const auto room = room_for(signature, first_dims, has_buffers);
    return room && room->is_exact() && !info(signature.collective).takes_splits && are_alike(first_dims) &&
           (room->is_in_buffer || room->n_exact_bytes <= kMostBytes);
  }

  // REQUIRES: may_go_direct(signature, first_dims).
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

  // None if the signature was not learnt.
  std::optional<std::uint32_t> find(const Signature& signature) const {
    return find_if([&](const Signature& known) { return known == signature; });
  }
  std::optional<std::uint32_t> find(const Call& call) const {
    return find_if([&](const Signature& known) { return is_of(known, call); });
  }
  // Null if first dimensions cannot differ; valid until the next learn(). REQUIRES: the signature was found.
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

  // Most programs repeat their calls in the same order, so the search begins after the last match.
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
  std::size_t oldest_ = 0;  // once there are kMost signatures
  mutable std::size_t next_ = 0;
};

}  // namespace ciranda
