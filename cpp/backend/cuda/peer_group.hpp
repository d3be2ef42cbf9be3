// PeerGroup: the memory and the stream by which the ranks of a lane exchange tensors on their GPUs, once PeerSettling
// has filled it in. Used by PeerBackend, PeerSettling and PeerCollective; one thread (the holder of the progress lock),
// and the GPU's thread while PeerSettling waits for its jobs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "backend/cuda/peer_memory.hpp"
#include "backend/cuda/peer_stream.hpp"
#include "base/status.hpp"
#include "collective/arena_session.hpp"

namespace ciranda::cuda {

struct PeerGroup {
  PeerGroup(Gpu& gpu, Mesh& mesh, ArenaSession& of_lane) : stream(gpu, mesh), session(of_lane) {}

  PeerStream stream;
  ArenaSession& session;

  // --- by PeerSettling
  std::optional<Status> usable;            // see Backend::usable()
  PeerMemory* own = nullptr;               // null: none
  std::vector<std::byte*> memory;          // by member, as this rank's GPU has mapped it
  std::vector<CUdeviceptr> opened;         // of other processes; to be closed
  std::size_t slot_bytes = 0;              // the smallest of all members
  std::optional<std::uint64_t> last = {};  // the last chunk that PeerAllreduce has used
};

}  // namespace ciranda::cuda
