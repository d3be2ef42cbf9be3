// The table of all algorithms: for which collective and memory each is, how it begins, what it costs, and where it is
// possible. A new one is a source and a line of launch.hpp under collective/, and a row here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "call/op_table.hpp"
#include "collective/launch.hpp"

namespace ciranda {

struct Policy;

// What there is to work with; each includes those before it.
enum class Memory : std::uint8_t {
  kChannels,     // pairs of ranks
  kArena,        // memory that all ranks share
  kSharedSlots,  // ... whose slots are large enough to be shared out among the ranks
};

// The time of a call by its size.
struct Cost {
  std::uint64_t fixed_ns = 0;
  std::uint64_t fs_per_byte = 0;
  std::uint64_t segment_ns = 0;  // for each after the first
  std::uint64_t fs_to_fill = 0;  // for each byte of the first segment, until the last rank has it
  // What a call takes at least, whatever the rank that came last measured. Where that finds all that others give it
  // there already, it waits for nobody; but others wait on for what it gives them, which is passed on from rank to
  // rank.
  std::uint64_t unseen_ns = 0;
};

// What costs are made of: HostCosts and Placement (cost_model.hpp). Times include that ranks wait for a shared core.
struct CostTerms {
  std::uint64_t n_ranks;
  std::uint64_t on_host;  // ranks
  std::uint64_t n_hosts;
  std::uint64_t n_sharing;   // ranks of each host that share its work out
  std::uint64_t most_parts;  // that a host combines its inputs to
  std::uint64_t on_core;     // ranks
  std::uint64_t call_ns;
  std::uint64_t message_ns;
  std::uint64_t shared_ns;  // rounds, by shared memory, a channel of the host, and a link
  std::uint64_t channel_ns;
  std::uint64_t link_ns;
  std::uint64_t copy_fs;  // a byte: copied, combined, sent to a rank of the host, or of another
  std::uint64_t reduce_fs;
  std::uint64_t channel_fs;
  std::uint64_t link_fs;

  std::uint64_t others() const { return n_ranks - 1; }
  std::uint64_t neighbours() const { return on_host - 1; }
  std::uint64_t elsewhere() const { return n_ranks - on_host; }
};

// How much is moved at a time.
enum class Segments : std::uint8_t {
  kNone,      // all at once
  kSlots,     // of shared memory
  kBlocks,    // over channels
  kPairs,     // the same; where two ranks take turns, more
  kPassedOn,  // from rank to rank
};

struct AlgorithmRow {
  Collective collective;
  Memory needs;
  std::string_view name;
  std::unique_ptr<RunningCollective> (*start)(const Launch&);
  // Where there are several for a collective and a kind of memory, of which the cheapest is taken; else null.
  Cost (*cost)(const CostTerms&) = nullptr;
  Segments segments = Segments::kNone;
  // Beside the memory that it needs. Null: always.
  bool (*is_possible)(const Policy&, std::size_t n_bytes) = nullptr;
  // Where all ranks' tensors lie in memory that all have mapped. Null: as elsewhere.
  Cost (*cost_in_place)(const CostTerms&) = nullptr;
  bool is_one_shot = false;  // NativeOptions::one_shot_bytes is about it
};

std::span<const AlgorithmRow> algorithms();

// An algorithm, and what it moves at a time; 0: all at once.
struct Pick {
  const AlgorithmRow* row;
  std::size_t segment_bytes = 0;

  friend bool operator==(const Pick&, const Pick&) = default;
};

}  // namespace ciranda
