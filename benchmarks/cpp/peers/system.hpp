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

enum class DataType { kFloat32, kFloat16, kBFloat16 };
constexpr std::size_t size_of(DataType dtype) { return dtype == DataType::kFloat32 ? 4 : 2; }

// One size of a collective of numbers; an allreduce and a reducescatter add up. `count` is how many one rank brings.
// Many allreduces: of pieces of kPieceBytes, each a call of its own, all in flight at once.
inline constexpr std::size_t kPieceBytes = 1024;
struct Case {
  Collective collective;
  DataType dtype;
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
using Call = std::function<std::span<const std::byte>()>;

inline std::vector<std::span<std::byte>> pieces_of(std::span<std::byte> buffer) {
  std::vector<std::span<std::byte>> pieces;
  for (std::size_t at = 0; at < buffer.size(); at += kPieceBytes) {
    pieces.push_back(buffer.subspan(at, std::min(kPieceBytes, buffer.size() - at)));
  }
  return pieces;
}

class System {
 public:
  System() = default;
  System(const System&) = delete;
  System& operator=(const System&) = delete;
  virtual ~System() = default;  // leaves

  // With what is to be known of how it did what was bound so far.
  virtual std::string version() const = 0;

  // `buffer` is what this rank brings. The result lies there too, or where it is of another length in `result`, which
  // has room for it; both are as long-lived as the call, aligned, and may be written to here. Collectives and types
  // that a system lacks give an empty Call.
  virtual Call bind(const Case& what, std::span<std::byte> buffer, std::span<std::byte> result) = 0;
};

using OpenSystem = System* (*)(const World&);

}  // namespace peers

// What a module defines. The caller owns the system.
extern "C" [[gnu::visibility("default")]] peers::System* open_system(const peers::World& world);
