// MeetingPlaces: which names of a lane may be carried out by a meeting (transport/meeting.hpp), without the
// coordinator, and where in the shared memory that happens. Every member gives places out in the order of the log, so
// all of them know the same without being told. Places are never given back, as slots are not. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "request/request.hpp"

namespace ciranda {

struct MeetingPlace {
  std::uint32_t number = 0;
  std::size_t offset = 0;   // in each member's area, of what it brings to even rounds; that for odd ones follows
  std::size_t n_bytes = 0;  // for one round
};

// What each tensor takes there: whole cache lines.
inline std::size_t meeting_bytes(const TensorSignature& tensor) {
  constexpr std::size_t kLine = 64;
  return (tensor.n_bytes() + kLine - 1) / kLine * kLine;
}

// What a member brings; nothing where the call needs more than a look at what all bring, or is large: then work is
// better shared out.
inline std::optional<std::size_t> meeting_bytes(const Signature& signature) {
  constexpr std::size_t kMostBytes = 16 << 10;
  const bool is_allreduce = signature.collective == Collective::kAllreduce && signature.op != ReduceOp::kAdasum;
  const bool is_simple =
      is_allreduce || signature.collective == Collective::kBroadcast || signature.collective == Collective::kBarrier;
  if (!is_simple || signature.is_weighted || signature.tensors.size() > kMostBytes ||
      signature.n_bytes() > kMostBytes) {
    return std::nullopt;
  }
  std::size_t n_bytes = 0;
  for (const TensorSignature& tensor : signature.tensors) n_bytes += meeting_bytes(tensor);
  return n_bytes <= kMostBytes ? std::optional(n_bytes) : std::nullopt;
}

class MeetingPlaces {
 public:
  // What there is: places, and bytes in each member's area. The same on all members.
  MeetingPlaces(std::size_t n_places, std::size_t area_bytes) : n_places_(n_places), area_bytes_(area_bytes) {}

  std::optional<MeetingPlace> take(std::size_t n_bytes) {
    if (n_taken_ == n_places_ || area_bytes_ - offset_ < 2 * n_bytes) return std::nullopt;
    const MeetingPlace place{static_cast<std::uint32_t>(n_taken_++), offset_, n_bytes};
    offset_ += 2 * n_bytes;
    return place;
  }

 private:
  std::size_t n_places_;
  std::size_t area_bytes_;
  std::size_t n_taken_ = 0;
  std::size_t offset_ = 0;
};

}  // namespace ciranda
