// The interface between peers_rank and the systems that it measures.
//
// A new peer is one small file: a class derived from System, and a function `open_system` that makes it. It is built as
// a module of its own (see CMakeLists.txt), which is loaded by name, since a process can contain only one MPI.
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

// A collective on numbers of one type and size; reductions are sums. Each rank contributes `count` numbers.
// kManyAllreduces: a separate allreduce for each kPieceBytes of them, all pending at the same time.
inline constexpr std::size_t kPieceBytes = 1024;
struct Case {
  Collective collective;
  DataType dtype;
  std::size_t count;
  std::string name;  // the same on all ranks, and different for each case
};

// This rank, and its means of exchanging what systems need to connect.
struct World {
  int rank;
  int size;
  std::string folder;                                          // an empty folder, shared by all ranks
  std::function<void(std::span<std::byte>)> broadcast_from_0;  // in place
};

// Performs the collective once, blocks until it is done, and returns the result.
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
  virtual ~System() = default;  // disconnects

  // The system's version, with notes on how it performed the cases bound so far.
  virtual std::string version() const = 0;

  // `buffer` is this rank's input. The result is also in `buffer`, or, if it has a different length, in `result`, which
  // is long enough. Both are aligned, live as long as the Call, and may be written by bind(). Returns an empty Call if
  // the system lacks the collective or the type.
  virtual Call bind(const Case& what, std::span<std::byte> buffer, std::span<std::byte> result) = 0;
};

using OpenSystem = System* (*)(const World&);

}  // namespace peers

// The function that a module defines. The caller owns the system.
extern "C" [[gnu::visibility("default")]] peers::System* open_system(const peers::World& world);
