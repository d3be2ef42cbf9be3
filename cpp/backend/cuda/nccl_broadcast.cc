#include "backend/cuda/nccl_broadcast.hpp"

#include <utility>

namespace ciranda::cuda {

// The root's own result is a copy of ours, so NCCL has nothing to copy there.
NcclCollective::Steps NcclBroadcast::moves() const {
  Copies packed;
  NcclOperation broadcast{.does = Does::kBroadcast, .count = n_bytes(), .peer = plan().root};
  if (is_root()) {
    broadcast.from = whole(plan().input, offset(), n_bytes());
    if (broadcast.from == nullptr) {
      add(packed, plan().input, offset(), room(), n_bytes());
      broadcast.from = room();
    }
    broadcast.to = const_cast<std::byte*>(broadcast.from);
    add(packed, plan().input, plan().output, offset(), n_bytes_of(plan().output.n_bytes()));
  } else {
    std::byte* const to = whole(plan().output, offset(), n_bytes());
    broadcast.to = to == nullptr ? room() : to;
    broadcast.from = broadcast.to;
  }
  return {std::move(packed), Operations{broadcast}};
}

NcclCollective::Steps NcclBroadcast::results() const {
  if (is_root() || whole(plan().output, offset(), n_bytes()) != nullptr) return {};
  Copies unpacked;
  add(unpacked, room(), plan().output, offset(), n_bytes());
  return {std::move(unpacked)};
}

}  // namespace ciranda::cuda
