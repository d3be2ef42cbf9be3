// RoundPlaces: which names of a lane may be carried out by a direct round in memory (transport/meeting.hpp), without
// the coordinator, and where in the shared memory that happens. Every member gives places out in the order of the log,
// so all of them know the same without being told. Places are never given back, as cache ids are not. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

#include "base/round_up.hpp"
#include "request/request.hpp"

namespace ciranda {

struct RoundPlace {
  std::uint32_t number = 0;
  std::size_t offset = 0;   // in each member's area, of what it contributes to even rounds; that for odd ones follows
  std::size_t n_bytes = 0;  // for one round
  // What each member contributes, if it is as much of each: it may lie where there is less room.
  std::size_t n_exact_bytes = kNotExact;

  static constexpr std::size_t kNotExact = ~std::size_t{0};

  bool is_in_buffer = false;  // there is no room for it in the areas: two members exchange buffers for it
};

// --- what a member contributes: each tensor from a new cache line on; before them, to an alltoall whose splits may
// differ with every call, how many rows of each tensor go to each rank, as int64

inline constexpr std::size_t kMostRoundBytes = 16 << 10;
// By two ranks: to pass once over what both contribute takes no longer than to share that work out, and needs no
// agreement. At 1 MiB an allreduce took a tenth less time so, at 256 KiB a third.
inline constexpr std::size_t kMostBufferBytes = 1 << 20;
// For a call that may contribute more or less each time, and goes another way where it contributes more than this.
inline constexpr std::size_t kVaryingRoundBytes = 4 << 10;

inline std::size_t whole_lines(std::size_t n_bytes) {
  constexpr std::size_t kLine = 64;
  return round_up(n_bytes, kLine);
}

// The bytes of some rows, or kManyBytes if they are as many or more.
inline constexpr std::size_t kManyBytes = kMostBufferBytes + 1;
inline std::size_t bytes_of_rows(std::int64_t n_rows, std::size_t row_bytes) {
  const auto rows = static_cast<std::uint64_t>(n_rows);
  if (rows == 0 || row_bytes == 0) return 0;
  const bool is_large = rows >= kManyBytes || row_bytes >= kManyBytes;
  return is_large ? kManyBytes : std::min(rows * row_bytes, kManyBytes);
}

// n_bytes_of(tensor): as bytes_of_rows(). None where it is too much.
template <typename NumBytes>
std::optional<std::size_t> sum_of_lines(std::size_t n_tensors, NumBytes n_bytes_of) {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < n_tensors && sum <= kMostRoundBytes; ++i) sum += whole_lines(n_bytes_of(i));
  return sum <= kMostRoundBytes ? std::optional(sum) : std::nullopt;
}

inline std::size_t bytes_of_splits(std::size_t n_tensors, std::size_t n_ranks) {
  return whole_lines(n_tensors * n_ranks * sizeof(std::int64_t));
}
inline std::size_t bytes_of_rows(const std::vector<std::int64_t>& splits, const TensorSignature& tensor) {
  return bytes_of_rows(std::accumulate(splits.begin(), splits.end(), std::int64_t{0}), tensor.row_bytes());
}

// Of an alltoall: equal parts, and as many rows each time.
inline bool has_fixed_rows(const Signature& signature) {
  return signature.collective == Collective::kAlltoall && !signature.arguments.empty();
}

// What any member contributes at most; none where the call needs more than a look at what all contribute, or is large:
// then work is better shared out. `first_dims`: [tensor][rank], where they may differ; they may have come over the
// network.
inline std::optional<std::size_t> round_bytes(const Signature& signature,
                                              const std::vector<std::vector<std::int64_t>>* first_dims) {
  const auto& tensors = signature.tensors;
  switch (signature.collective) {
    case Collective::kAllreduce:
      if (signature.op == ReduceOp::kAdasum || signature.is_weighted) return std::nullopt;
      [[fallthrough]];
    case Collective::kBroadcast:
    case Collective::kBarrier:
    case Collective::kReducescatter:
      if (signature.n_bytes() > kMostRoundBytes) return std::nullopt;
      return sum_of_lines(tensors.size(), [&](std::size_t i) { return tensors[i].n_bytes(); });
    case Collective::kAllgather:
      if (first_dims == nullptr || first_dims->size() != tensors.size()) return std::nullopt;
      return sum_of_lines(tensors.size(), [&](std::size_t i) {
        std::size_t most = 0;
        for (const std::int64_t n : (*first_dims)[i]) most = std::max(most, bytes_of_rows(n, tensors[i].row_bytes()));
        return most;
      });
    case Collective::kAlltoall:
      if (!has_fixed_rows(signature)) return kVaryingRoundBytes;
      return sum_of_lines(tensors.size(),
                          [&](std::size_t i) { return bytes_of_rows(signature.arguments[i], tensors[i].row_bytes()); });
    default: return std::nullopt;
  }
}

// What each member contributes, where it is as much of each: up to the end of the last tensor. first_dims as above.
inline std::size_t exact_round_bytes(const Signature& signature,
                                     const std::vector<std::vector<std::int64_t>>* first_dims) {
  const auto& tensors = signature.tensors;
  const auto up_to_last = [&](auto n_bytes_of) {
    std::size_t sum = 0;
    std::size_t last = 0;
    for (std::size_t i = 0; i < tensors.size() && sum + last < kManyBytes; ++i) {
      sum += whole_lines(last);
      last = std::min(n_bytes_of(i), kManyBytes);
    }
    return std::min(sum + last, kManyBytes);
  };
  switch (signature.collective) {
    case Collective::kAllreduce:
    case Collective::kBroadcast:
    case Collective::kReducescatter: return up_to_last([&](std::size_t i) { return tensors[i].n_bytes(); });
    case Collective::kAllgather: {
      if (first_dims == nullptr || first_dims->size() != tensors.size()) return RoundPlace::kNotExact;
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        const auto is_own = [&](std::int64_t n_rows) { return n_rows == tensors[i].shape.front(); };
        if (!std::ranges::all_of((*first_dims)[i], is_own)) return RoundPlace::kNotExact;
      }
      return up_to_last([&](std::size_t i) { return tensors[i].n_bytes(); });
    }
    case Collective::kAlltoall:
      if (!has_fixed_rows(signature)) return RoundPlace::kNotExact;
      return up_to_last([&](std::size_t i) { return bytes_of_rows(signature.arguments[i], tensors[i].row_bytes()); });
    default: return RoundPlace::kNotExact;
  }
}

// As exact_round_bytes().
inline bool is_for_buffer(const Signature& signature, const std::vector<std::vector<std::int64_t>>* first_dims) {
  if (signature.op == ReduceOp::kAdasum || signature.is_weighted) return false;
  const std::size_t n_bytes = exact_round_bytes(signature, first_dims);
  return n_bytes != RoundPlace::kNotExact && n_bytes > kMostRoundBytes && n_bytes <= kMostBufferBytes;
}

// What any member contributes at most; none as for round_bytes(). `has_buffers`: members have some to exchange.
inline std::optional<std::size_t> contributed_bytes(const Signature& signature,
                                                    const std::vector<std::vector<std::int64_t>>* first_dims,
                                                    bool has_buffers) {
  const std::size_t exact = exact_round_bytes(signature, first_dims);
  if (has_buffers && is_for_buffer(signature, first_dims)) return exact;
  const auto room = round_bytes(signature, first_dims);
  return room ? std::optional(std::min(*room, exact)) : std::nullopt;
}

// Whether this call contributes no more than there is room for. REQUIRES: its name has the place.
inline bool fits(const Request& request, const RoundPlace& place) {
  if (request.signature.collective != Collective::kAlltoall || has_fixed_rows(request.signature)) return true;
  if (!request.refusal.ok()) return false;
  const auto& splits = request.splits;
  const auto n_bytes = sum_of_lines(
      splits.size(), [&](std::size_t i) { return bytes_of_rows(splits[i], request.signature.tensors[i]); });
  return n_bytes && bytes_of_splits(splits.size(), splits.front().size()) + *n_bytes <= place.n_bytes;
}

class RoundPlaces {
 public:
  // What there is: places, bytes in each member's area, and whether members have buffers to exchange. The same on all
  // members.
  RoundPlaces(std::size_t n_places, std::size_t area_bytes, bool has_buffers = false)
      : n_places_(n_places), area_bytes_(area_bytes), has_buffers_(has_buffers) {}

  bool has_buffers() const { return has_buffers_; }

  std::optional<RoundPlace> take(std::size_t n_bytes) {
    if (n_taken_ == n_places_ || area_bytes_ - offset_ < 2 * n_bytes) return std::nullopt;
    const RoundPlace place{.number = static_cast<std::uint32_t>(n_taken_++), .offset = offset_, .n_bytes = n_bytes};
    offset_ += 2 * n_bytes;
    return place;
  }

 private:
  std::size_t n_places_;
  std::size_t area_bytes_;
  bool has_buffers_;
  std::size_t n_taken_ = 0;
  std::size_t offset_ = 0;
};

}  // namespace ciranda
