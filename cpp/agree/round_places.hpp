// RoundPlaces: which names of a lane may be carried out by a direct round in memory (transport/arrivals.hpp), without
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
#include "call/request.hpp"

namespace ciranda {

// What a round needs.
struct Room {
  std::size_t n_bytes = 0;  // in each member's area
  // What each member contributes, if it is as much of each: it may lie where there is less room.
  std::size_t n_exact_bytes = kNotExact;
  bool is_in_buffer = false;  // two members exchange buffers for it

  static constexpr std::size_t kNotExact = ~std::size_t{0};
  bool is_exact() const { return n_exact_bytes != kNotExact; }
  std::size_t most_bytes() const { return is_exact() ? n_exact_bytes : n_bytes; }
};

struct RoundPlace : Room {
  std::uint32_t number = 0;
  std::size_t offset = 0;  // in each member's area, of what it contributes to even rounds; that for odd ones follows
};

// --- what a member contributes: each tensor from a new cache line on; before them, to an alltoall whose splits may
// differ with every call, how many rows of each tensor go to each rank, as int64

inline constexpr std::size_t kMostRoundBytes = 16 << 10;
// By two ranks: to pass once over what both contribute takes no longer than to share that work out, and needs no
// agreement. At 1 MiB an allreduce took a tenth less time so, at 256 KiB a third.
inline constexpr std::size_t kMostBufferBytes = 1 << 20;
// From here on a buffer, whose lines its owner has read last, is written faster than an area, whose lines the other has
// read: 8 KiB took half of the time between near cores, and a third between far ones.
inline constexpr std::size_t kMostAreaBytesOfTwo = 1 << 10;
// For a call that may contribute more or less each time, and goes another way where it contributes more than this.
inline constexpr std::size_t kVaryingRoundBytes = 4 << 10;

// Of what each member contributes exactly so much. `has_buffers`, here and below: members have some to exchange.
inline bool goes_in_buffer(std::size_t n_exact_bytes, bool has_buffers) {
  return has_buffers && n_exact_bytes > kMostAreaBytesOfTwo && n_exact_bytes <= kMostBufferBytes;
}

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

// Splits travel before the tensors: there may be other rows for every member with every call.
inline bool has_own_splits(const Signature& signature) {
  return info(signature.collective).takes_splits && signature.arguments.empty();
}

// Not where the call needs more than a look at what all contribute.
inline bool may_go_direct(const Signature& signature) {
  return info(signature.collective).goes_direct && info(signature.op).is_elementwise && !signature.is_weighted;
}

// How many bytes members contribute of a tensor: the fewest and the most. `first_dims`, here and below: null where they
// cannot differ; they may have come over the network.
struct LeastAndMost {
  std::size_t least;
  std::size_t most;
};
inline LeastAndMost contributed_of(const Signature& signature, std::size_t tensor, const FirstDims* first_dims) {
  const TensorSignature& one = signature.tensors[tensor];
  const CollectiveInfo& row = info(signature.collective);
  if (!row.first_dim_may_differ && !row.takes_splits) return {one.n_bytes(), one.n_bytes()};
  const auto bytes_of = [&](std::int64_t n_rows) { return bytes_of_rows(n_rows, one.row_bytes()); };
  if (row.takes_splits) return {bytes_of(signature.arguments[tensor]), bytes_of(signature.arguments[tensor])};
  LeastAndMost found{kManyBytes, 0};
  for (const std::int64_t n_rows : (*first_dims)[tensor]) {
    found = {std::min(found.least, bytes_of(n_rows)), std::max(found.most, bytes_of(n_rows))};
  }
  return found;
}

// What each member contributes, up to the end of the last tensor, where all contribute as much of each; kManyBytes if
// it is as much or more.
inline std::optional<std::size_t> exact_bytes_of(const Signature& signature, const FirstDims* first_dims) {
  if (signature.tensors.empty()) return std::nullopt;
  std::size_t sum = 0;
  for (std::size_t i = 0; i < signature.tensors.size(); ++i) {
    const auto [least, most] = contributed_of(signature, i, first_dims);
    if (least != most) return std::nullopt;
    sum = std::min(whole_lines(sum) + std::min(most, kManyBytes), kManyBytes);
  }
  return sum;
}

inline bool knows_rows(const Signature& signature, const FirstDims* first_dims) {
  if (!info(signature.collective).first_dim_may_differ) return true;
  return first_dims != nullptr && first_dims->size() == signature.tensors.size() &&
         std::ranges::none_of(*first_dims, [](const auto& rows) { return rows.empty(); });
}

// What members contribute at most; none where the call may not go direct, or is large: then work is better shared out.
inline std::optional<Room> room_for(const Signature& signature, const FirstDims* first_dims, bool has_buffers) {
  if (!may_go_direct(signature) || !knows_rows(signature, first_dims)) return std::nullopt;
  if (has_own_splits(signature)) return Room{kVaryingRoundBytes};
  const std::size_t n_tensors = signature.tensors.size();
  Room room;
  if (const auto exact = exact_bytes_of(signature, first_dims)) {
    room.n_exact_bytes = *exact;
    room.is_in_buffer = goes_in_buffer(*exact, has_buffers);
    if (room.is_in_buffer) return room;
  }
  const auto n_bytes =
      sum_of_lines(n_tensors, [&](std::size_t i) { return contributed_of(signature, i, first_dims).most; });
  if (!n_bytes) return std::nullopt;
  room.n_bytes = *n_bytes;
  return room;
}

// Whether this call contributes no more than there is room for. REQUIRES: its name has the place.
inline bool fits(const Request& request, const RoundPlace& place) {
  if (!has_own_splits(request.signature)) return true;
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

  std::optional<RoundPlace> take(const Room& room) {
    if (n_taken_ == n_places_ || area_bytes_ - offset_ < 2 * room.n_bytes) return std::nullopt;
    const RoundPlace place{room, static_cast<std::uint32_t>(n_taken_++), offset_};
    offset_ += 2 * room.n_bytes;
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
