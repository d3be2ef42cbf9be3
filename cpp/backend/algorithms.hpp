// The table of all algorithms: each row has the collective, the memory it needs, the start function, the cost, and when
// it is possible. A new algorithm is a source file and a line of launch.hpp under collective/, and a row here.
// Called by CostModel and Policy; pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backend/native_options.hpp"
#include "call/op_table.hpp"
#include "collective/launch.hpp"
#include "collective/rounding.hpp"

namespace ciranda {

// The memory that is available or needed; each value includes those before it.
enum class Memory : std::uint8_t {
  kChannels,     // pairs of ranks
  kArena,        // memory that all ranks share
  kSharedSlots,  // an arena whose slots are large enough to be divided among the ranks
};

// The time of a call as a function of its size.
struct Cost {
  std::uint64_t fixed_ns = 0;
  std::uint64_t fs_per_byte = 0;
  std::uint64_t segment_ns = 0;  // for each segment after the first
  std::uint64_t fs_to_fill = 0;  // for each byte of the first segment, until the last rank has it
  // The least time that a call takes, whatever the last rank to arrive has measured. That rank may find the data of all
  // others there already and wait for none. But others still wait for its data, which is passed on from rank to rank.
  std::uint64_t unseen_ns = 0;
};

// The terms of costs, from HostCosts and Placement (cost_model.hpp). Times include waiting for a core that ranks share.
struct CostTerms {
  std::uint64_t n_ranks;
  std::uint64_t on_host;  // ranks
  std::uint64_t n_hosts;
  std::uint64_t n_sharing;   // ranks of each host among which its work is divided
  std::uint64_t most_parts;  // partial results to which a host combines its inputs
  std::uint64_t on_core;     // ranks
  std::uint64_t call_ns;
  std::uint64_t message_ns;
  std::uint64_t shared_ns;  // a round through shared memory, through a channel within a host, and over a link
  std::uint64_t channel_ns;
  std::uint64_t link_ns;
  std::uint64_t copy_fs;  // for a byte: copied, combined, sent within the host, sent to another host
  std::uint64_t reduce_fs;
  std::uint64_t channel_fs;
  std::uint64_t link_fs;

  std::uint64_t others() const { return n_ranks - 1; }
  std::uint64_t neighbours() const { return on_host - 1; }
  std::uint64_t elsewhere() const { return n_ranks - on_host; }
};

// The kind of segments in which an algorithm moves data.
enum class Segments : std::uint8_t {
  kNone,      // none: all at once
  kSlots,     // a slot of shared memory
  kBlocks,    // a block over channels
  kPairs,     // as kBlocks, but larger between two ranks, which take turns
  kPassedOn,  // a piece that is passed on from rank to rank
};

// The facts of a call by which an algorithm is possible or not, besides the memory that is available.
struct Conditions {
  const NativeOptions& options;
  int n_ranks;
  std::size_t slot_bytes;
  bool combines_in_parts;  // of the plan (combines_in_parts())
  bool hosts_combine;      // some hosts can combine inputs of their own ranks first (host_parts.hpp)
  Rounding rounding;
};

struct AlgorithmRow {
  Collective collective;
  Memory needs;
  std::string_view name;
  std::unique_ptr<RunningCollective> (*start)(const Launch&);
  // By it the cheapest of several rows for a collective and a kind of memory is chosen. Null if there is only one row.
  Cost (*cost)(const CostTerms&) = nullptr;
  Segments segments = Segments::kNone;
  // A further condition besides the needed memory. Null: none.
  bool (*is_possible)(const Conditions&, std::size_t n_bytes) = nullptr;
  // The cost if all ranks' tensors lie in memory that all have mapped. Null: the same cost.
  Cost (*cost_in_place)(const CostTerms&) = nullptr;
  bool is_one_shot = false;  // NativeOptions::one_shot_bytes applies to it
};

std::span<const AlgorithmRow> algorithms();

// An algorithm with its segment size; 0: all at once.
struct Pick {
  const AlgorithmRow* row;
  std::size_t segment_bytes = 0;

  friend bool operator==(const Pick&, const Pick&) = default;
};

}  // namespace ciranda
