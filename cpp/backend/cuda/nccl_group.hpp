// NcclGroup: the communicator, the memory and the stream by which NCCL moves the tensors of a lane, once that is
// settled. Used by NcclBackend, NcclSettling, which fills it in, and NcclCollective; one thread (the holder of the
// progress lock), and while it is settled the GPU's.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "backend/cuda/nccl_communicator.hpp"
#include "backend/cuda/nccl_room.hpp"
#include "backend/cuda/nccl_shared.hpp"
#include "backend/cuda/nccl_stream.hpp"
#include "backend/cuda/peer_stream.hpp"
#include "base/status.hpp"
#include "transport/mesh.hpp"

namespace ciranda::cuda {

struct NcclGroup {
  NcclGroup(Gpu& gpu, Mesh& of_lane, std::size_t n_bytes) : stream(gpu, of_lane), mesh(of_lane), room_bytes(n_bytes) {}

  PeerStream stream;
  Mesh& mesh;
  const std::size_t room_bytes;  // the same on all ranks

  // --- settled
  std::optional<Status> usable;        // see Backend::usable()
  std::shared_ptr<NcclShared> shared;  // null: none

  // REQUIRES: usable.
  const NcclRoom& room() const { return *shared->room; }
  const std::shared_ptr<NcclStream>& stream_of_world() const { return shared->stream; }
  const std::shared_ptr<NcclCommunicator>& communicator() const { return shared->communicator; }
};

}  // namespace ciranda::cuda
