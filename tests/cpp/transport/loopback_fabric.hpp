// LoopbackFabric: a whole world of ranks inside one process, for tests: each rank is a thread with a mesh of its own.
//
// Threads: take_mesh() once a rank, from any thread; each mesh then as Mesh says. kill() from any thread at any time.
// Ownership: the memory lives as long as the fabric or any of its meshes.
// Failure: kill(rank), or the end of a rank's mesh, looks to the others as the end of a process does: its channels
// close (bytes already written stay readable), it appears in closed_peers(), sleepers wake. On the killed rank's own
// mesh every peer is closed.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "transport/mesh.hpp"

namespace ciranda {

struct LoopbackOptions {
  bool with_arena = true;
  std::size_t slot_bytes = 256 * 1024;
  std::size_t ring_bytes = 64 * 1024;  // of each channel and direction; a power of two, small ones give short writes
  std::vector<std::optional<HostCosts>> costs;  // by rank; empty = none
  std::vector<std::string> hosts;  // host label by rank; empty = all "localhost". Ranks of one host share memory.
  bool with_all_pairs = true;      // else only those that SpanningTree says are connected at first
};

class LoopbackFabric {
 public:
  explicit LoopbackFabric(int n_ranks, LoopbackOptions options = {});
  ~LoopbackFabric();
  LoopbackFabric(const LoopbackFabric&) = delete;
  LoopbackFabric& operator=(const LoopbackFabric&) = delete;

  // REQUIRES: rank in [0, n_ranks), each taken once.
  std::unique_ptr<Mesh> take_mesh(int rank);

  void kill(int rank);

  // From now on ranks that connect wait, until they may.
  void hold_connections();
  void let_connect();

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace ciranda
