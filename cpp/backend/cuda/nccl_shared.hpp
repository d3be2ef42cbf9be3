// NcclShared: a communicator, and the memory of its work on this rank's GPU. The lanes of a world that have the same
// ranks share one, as a communicator takes about 0.6 GB of a GPU: their calls take turns, and follow each other in one
// stream.
//
// Threads: any. The last lane that has it ends it.
//
// Called by NcclBackend, NcclGroup and NcclSettling.
#pragma once

#include <atomic>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "backend/cuda/gpu.hpp"
#include "backend/cuda/nccl_api.hpp"
#include "backend/cuda/nccl_communicator.hpp"
#include "backend/cuda/nccl_room.hpp"
#include "backend/cuda/nccl_stream.hpp"
#include "transport/mesh.hpp"

namespace ciranda::cuda {

class NcclShared {
 public:
  // Who shares: the rank in its world, its GPU, and the lane's ranks.
  using Key = std::tuple<const PeerInfo*, const Gpu*, std::vector<int>>;
  static Key key_of(const Mesh& mesh, const Gpu& gpu);

  NcclShared(NcclRoom* memory, std::shared_ptr<NcclStream> of_world) : room(memory), stream(std::move(of_world)) {}
  ~NcclShared();
  NcclShared(const NcclShared&) = delete;
  NcclShared& operator=(const NcclShared&) = delete;

  // Null: there is none that can be used.
  static std::shared_ptr<NcclShared> find(const Key& key);
  static void keep(const Key& key, const std::shared_ptr<NcclShared>& made);

  // Work that never ends may still use it.
  void leave_alone() {
    is_left_alone_.store(true);
    stream->leave_alone();
  }

  NcclRoom* const room;
  const std::shared_ptr<NcclStream> stream;
  ncclUniqueId id{};                               // of the communicator
  std::shared_ptr<NcclCommunicator> communicator;  // null: it is not made yet

 private:
  std::atomic<bool> is_left_alone_{false};
};

}  // namespace ciranda::cuda
