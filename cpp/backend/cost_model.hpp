// CostModel: how long each way of carrying out an allreduce or a broadcast takes, by size: a fixed part (rounds of
// waiting, messages), one for each segment after the first, and one for each byte (copied, combined, sent over a host's
// link).
//
// Made of HostCosts that all ranks know, and of how they lie on hosts. Computed in whole numbers, so that all come to
// the same choice. What it does not know, as what caches do to segments of different lengths, OnlineAutotuner finds.
// Pure; a plain value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/host_costs.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

enum class Algorithm : std::uint8_t {
  kSharedOneShot,
  kSharedTwoShot,
  kSharedInPlace,  // what two shot becomes where all ranks' tensors lie in memory that all have mapped
  kDirectOneShot,
  kDirectTwoShot,
  kDirectByHosts,
  kDirectDoubling,
  kBroadcastDirect,
  kBroadcastTree,
  kBroadcastChain,
};
inline constexpr std::size_t kNumAlgorithms = 10;

struct Way {
  Algorithm algorithm;
  std::size_t segment_bytes = 0;  // what is moved at a time; 0: all at once

  friend bool operator==(const Way&, const Way&) = default;
};

// How the ranks of a mesh lie.
struct Placement {
  std::uint64_t n_ranks = 1;
  std::uint64_t n_hosts = 1;
  std::uint64_t most_on_a_host = 1;
  std::uint64_t most_on_a_core = 1;
  std::uint64_t least_on_a_host = 0;  // 0: as many on each
  std::uint64_t most_parts = 1;       // that a host combines its inputs to (collective/host_parts.hpp)
};
Placement placement_of(const Mesh& mesh);

// Of the mesh's ranks, what the slowest has measured; the defaults if none has.
HostCosts costs_of(const Mesh& mesh);

class CostModel {
 public:
  CostModel(const HostCosts& costs, const Placement& placement);

  double microseconds(const Way& way, std::size_t n_bytes) const;

  // What a call takes at least, whatever the rank that came last measured. Where that finds all that others give it
  // there already, it waits for nobody; but others wait on for what it gives them, which is passed on from rank to
  // rank.
  std::uint64_t unseen_ns(Algorithm algorithm) const { return line(algorithm).unseen_ns; }

  // Whether `one` takes at most so many percent of what `other` takes; the same on all ranks.
  bool is_no_slower(const Way& one, const Way& other, std::size_t n_bytes, std::uint64_t percent = 100) const;

 private:
  struct Line {
    std::uint64_t fixed_ns = 0;
    std::uint64_t fs_per_byte = 0;
    std::uint64_t segment_ns = 0;  // for each after the first
    std::uint64_t fs_to_fill = 0;  // for each byte of the first segment, until the last rank has it
    std::uint64_t unseen_ns = 0;
  };
  void add_reductions(const HostCosts& costs, const Placement& placement);
  void add_broadcasts(const HostCosts& costs, const Placement& placement);
  Line& line(Algorithm algorithm) { return lines_[static_cast<std::size_t>(algorithm)]; }
  const Line& line(Algorithm algorithm) const { return lines_[static_cast<std::size_t>(algorithm)]; }
  // Of the part that does not grow with every byte.
  std::uint64_t nanoseconds(const Way& way, std::size_t n_bytes) const;

  std::array<Line, kNumAlgorithms> lines_;
};

}  // namespace ciranda
