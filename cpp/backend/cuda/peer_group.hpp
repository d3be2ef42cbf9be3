// PeerGroup: the memory and the stream by which the ranks of a lane exchange tensors on their GPUs, once PeerSettling
// has filled it in. Used by PeerBackend, PeerSettling and PeerCollective; one thread (the holder of the progress lock),
// and the GPU's thread while PeerSettling waits for its jobs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/cuda/peer_memory.hpp"
#include "backend/cuda/peer_stream.hpp"
#include "base/status.hpp"
#include "collective/arena_session.hpp"

namespace ciranda::cuda {

struct PeerGroup {
  PeerGroup(Gpu& gpu, Mesh& of_ranks, ArenaSession& of_lane)
      : mesh(of_ranks), stream(gpu, of_ranks), of_odd_chunks(gpu, of_ranks), session(of_lane) {}

  // Both have one queue on the GPU.
  PeerStream& stream_of(std::uint64_t chunk) { return chunk % 2 == 0 ? stream : of_odd_chunks; }
  bool is_under_way() const { return stream.is_under_way() || of_odd_chunks.is_under_way(); }
  std::string awaited_device() const {
    return stream.is_under_way() ? stream.awaited_device() : of_odd_chunks.awaited_device();
  }
  void abort() {
    stream.abort();
    of_odd_chunks.abort();
  }
  void leave() {
    stream.leave();
    of_odd_chunks.leave();
  }

  const Mesh& mesh;
  PeerStream stream;  // also of what settles
  PeerStream of_odd_chunks;
  ArenaSession& session;

  // --- by PeerSettling
  std::optional<Status> usable;            // see Backend::usable()
  std::string advice;                      // see Backend::advice()
  PeerMemory* own = nullptr;               // null: none
  std::vector<std::byte*> memory;          // by member, as this rank's GPU has mapped it
  std::vector<CUdeviceptr> opened;         // of other processes; to be closed
  std::size_t slot_bytes = 0;              // the smallest of all members
  std::optional<std::uint64_t> last = {};  // the last chunk that a collective has used
};

}  // namespace ciranda::cuda
