// What a system that is measured looks like to peers_rank, which measures it.
//
// A new peer is one small file: a class of this kind, and a function `open_system` that makes it. It is built as a
// module of its own (see CMakeLists.txt), since a process can hold one MPI at most, and is loaded by name.
//
// Threads: one. Failure: exceptions, which end the rank.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace peers {

enum class Collective { kAllreduce, kBroadcast, kAllgather, kReducescatter, kAlltoall, kManyAllreduces };

// One size of a collective of floats; an allreduce and a reducescatter add up. `count` is what one rank brings. Many
// allreduces: of pieces of kPieceCount floats, each a call of its own, all in flight at once.
inline constexpr std::size_t kPieceCount = 256;
struct Case {
  Collective collective;
  std::size_t count;
  std::string name;  // the same on all ranks, another for each case
};

// This rank's place, and how ranks tell each other what they need to begin with.
struct World {
  int rank;
  int size;
  std::string folder;                                          // an empty one, which all ranks see
  std::function<void(std::span<std::byte>)> broadcast_from_0;  // in place
};

// Performs the collective, once, until it is done, and says where the result is.
using Call = std::function<std::span<const float>()>;

inline std::vector<std::span<float>> pieces_of(std::span<float> buffer) {
  std::vector<std::span<float>> pieces;
  for (std::size_t at = 0; at < buffer.size(); at += kPieceCount) {
    pieces.push_back(buffer.subspan(at, std::min(kPieceCount, buffer.size() - at)));
  }
  return pieces;
}

class System {
 public:
  System() = default;
  System(const System&) = delete;
  System& operator=(const System&) = delete;
  virtual ~System() = default;  // leaves

  virtual std::string version() const = 0;

  // `buffer` is what this rank brings. The result lies there too, or where it is of another length in `result`, which
  // has room for it; both are as long-lived as the call. Collectives that a system lacks give an empty Call.
  virtual Call bind(const Case& what, std::span<float> buffer, std::span<float> result) = 0;
};

using OpenSystem = System* (*)(const World&);

}  // namespace peers

// What a module defines. The caller owns the system.
extern "C" [[gnu::visibility("default")]] peers::System* open_system(const peers::World& world);
