// RoundRooms: which names of a lane may use direct rounds in memory (transport/arrivals.hpp), without the coordinator,
// and where in shared memory these take place. Every member reserves room in the order of the log, so all agree on
// them without communication. Room is never freed; a cache id that is reassigned keeps its room.
// Called by DirectRounds, Coordinator, SentInputs, UnnamedRounds, unnamed.hpp, RoundMemory, RoundsInMemory,
// Lane, which makes it, execute/outputs.hpp and round_data.hpp; types used by Participant and PersistentOp; pure.
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

// The memory that a round needs.
struct Room {
  std::size_t n_bytes = 0;  // in each member's area
  // The size of each member's contribution, if it is the same for all; then less room may suffice.
  std::size_t n_exact_bytes = kNotExact;
  bool is_in_buffer = false;  // two members exchange buffers for it

  static constexpr std::size_t kNotExact = ~std::size_t{0};
  bool is_exact() const { return n_exact_bytes != kNotExact; }
  std::size_t most_bytes() const { return is_exact() ? n_exact_bytes : n_bytes; }
};

struct ReservedRoom : Room {
  std::uint32_t number = 0;
  std::size_t offset = 0;  // in a member's area, of its contribution to even rounds; the one to odd rounds follows
};

// --- A member's contribution: each tensor begins on a new cache line. An alltoall whose splits may differ with every
// --- call begins with the number of rows of each tensor that go to each rank, as int64.

inline constexpr std::size_t kMostRoundBytes = 16 << 10;
// The limit for two ranks. One pass by each rank over both contributions takes no longer than dividing that work, and
// needs no agreement. An allreduce took a tenth less time this way at 1 MiB, and a third less at 256 KiB.
inline constexpr std::size_t kMostBufferBytes = 1 << 20;
// Above this size a rank writes faster to a buffer, whose lines it has read last itself, than to an area, whose lines
// the other rank has read: 8 KiB took half the time between near cores, and a third between far ones.
inline constexpr std::size_t kMostAreaBytesOfTwo = 1 << 10;
// A call whose contribution may have a different size each time uses no direct round above this size.
inline constexpr std::size_t kVaryingRoundBytes = 4 << 10;

// REQUIRES: each member contributes exactly this size. `has_buffers`, here and below: members have buffers to exchange.
inline bool goes_in_buffer(std::size_t n_exact_bytes, bool has_buffers) {
  return has_buffers && n_exact_bytes > kMostAreaBytesOfTwo && n_exact_bytes <= kMostBufferBytes;
}

inline std::size_t whole_lines(std::size_t n_bytes) {
  constexpr std::size_t kLine = 64;
  return round_up(n_bytes, kLine);
}

// The number of bytes of some rows, but at most kManyBytes.
inline constexpr std::size_t kManyBytes = kMostBufferBytes + 1;
inline std::size_t bytes_of_rows(std::int64_t n_rows, std::size_t row_bytes) {
  const auto rows = static_cast<std::uint64_t>(n_rows);
  if (rows == 0 || row_bytes == 0) return 0;
  const bool is_large = rows >= kManyBytes || row_bytes >= kManyBytes;
  return is_large ? kManyBytes : std::min(rows * row_bytes, kManyBytes);
}

// n_bytes_of(tensor): as bytes_of_rows(). None if the sum is too large.
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

// True if splits are sent before the tensors, since every call may have other splits.
inline bool has_own_splits(const Signature& signature) {
  return info(signature.collective).takes_splits && signature.arguments.empty();
}

// False for calls that need more than one pass over all contributions.
inline bool may_go_direct(const Signature& signature) {
  return info(signature.collective).goes_direct && info(signature.op).is_elementwise && !signature.is_weighted;
}

// The fewest and the most bytes that a member contributes of a tensor. `first_dims`, here and below: null if first
// dimensions cannot differ; not trusted, since they may come from the network.
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

// The size of each member's contribution, up to the end of its last tensor, if it is the same for all members;
// kManyBytes if it is that or more.
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

// The most that members contribute. None if the call may not be direct, or is so large that ranks should share the
// work.
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

// Whether this call's contribution fits into the room. REQUIRES: the room belongs to the call's name.
inline bool fits(const Request& request, const ReservedRoom& room) {
  if (!has_own_splits(request.signature)) return true;
  if (!request.refusal.ok()) return false;
  const auto& splits = request.splits;
  const auto n_bytes = sum_of_lines(
      splits.size(), [&](std::size_t i) { return bytes_of_rows(splits[i], request.signature.tensors[i]); });
  return n_bytes && bytes_of_splits(splits.size(), splits.front().size()) + *n_bytes <= room.n_bytes;
}

class RoundRooms {
 public:
  // Equal on all members: names with room, bytes in each member's area, and whether members have buffers to exchange.
  RoundRooms(std::size_t n_rooms, std::size_t area_bytes, bool has_buffers = false)
      : n_rooms_(n_rooms), area_bytes_(area_bytes), has_buffers_(has_buffers) {}

  bool has_buffers() const { return has_buffers_; }

  std::optional<ReservedRoom> take(const Room& room) {
    if (n_taken_ == n_rooms_ || area_bytes_ - offset_ < 2 * room.n_bytes) return std::nullopt;
    const ReservedRoom reserved{room, static_cast<std::uint32_t>(n_taken_++), offset_};
    offset_ += 2 * room.n_bytes;
    return reserved;
  }

 private:
  std::size_t n_rooms_;
  std::size_t area_bytes_;
  bool has_buffers_;
  std::size_t n_taken_ = 0;
  std::size_t offset_ = 0;
};

}  // namespace ciranda
