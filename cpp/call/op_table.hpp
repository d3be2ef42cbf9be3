// The table of collectives: what each needs, and what ranks must agree on. Enum values are those of the C ABI.
// Used by backend/, bindings/, call/, execute/ and observe/, and through Request by agree/, capi/ and engine/; pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/exported.hpp"
#include "ciranda/ciranda.h"

namespace ciranda {

enum class Collective : std::uint8_t {
  kAllreduce = CIRANDA_ALLREDUCE,
  kAllgather = CIRANDA_ALLGATHER,
  kBroadcast = CIRANDA_BROADCAST,
  kBarrier = CIRANDA_BARRIER,
  kReducescatter = CIRANDA_REDUCESCATTER,
  kAlltoall = CIRANDA_ALLTOALL,
  kReduce = CIRANDA_REDUCE,
  kGather = CIRANDA_GATHER,
  kScatter = CIRANDA_SCATTER,
  kTransfer = CIRANDA_TRANSFER,  // send and recv: from one rank, the root, to one other
  kJoin = CIRANDA_JOIN,
  kAddProcessSet = CIRANDA_ADD_PROCESS_SET,
  kRemoveProcessSet = CIRANDA_REMOVE_PROCESS_SET,
  kAddLane = 13,  // internal: first use of a lane of a process set
  kScan = CIRANDA_SCAN,
};
inline constexpr std::size_t kNumCollectives = 15;

// The subject of a call.
enum class Subject : std::uint8_t {
  kTensors,
  kNothing,  // only the arrival of all ranks
  kJoin,
  kSets,   // adds or removes process sets
  kLanes,  // adds lanes
};

// Which ranks contribute input, or receive a result.
enum class Who : std::uint8_t { kAll, kRoot, kOthers };  // kOthers: all ranks except the root

enum class Reduces : std::uint8_t {
  kNothing,      // no reduce op and no factors
  kElementwise,  // only element types that the op supports
  kAny,          // also ops that are not elementwise, and weighted averages
};

// How the rows of tensors (elements along dimension 0) are distributed.
enum class Rows : std::uint8_t {
  kWhole,   // not at all: scalars are allowed
  kJoined,  // concatenated in rank order; ranks may have different numbers, which the log tells all of them
  kCut,     // each rank gets even_splits() of them
  kSplit,   // as the caller says; the splits may change with every call and are sent with the data
};

// Where the result is stored.
enum class Output : std::uint8_t {
  kGiven,        // in the caller's memory, as large as the input
  kMayBeGiven,   // in the caller's memory, if given; otherwise the engine allocates
  kMayHaveRoom,  // in the caller's memory, if Request::has_room_for_all; otherwise the engine allocates
  kAllocated,    // in memory that the engine allocates
};

struct Signature;
class Status;

// InvalidArgument if the arguments are not valid. `ranks`: those of the process set.
using CheckArguments = Status(const Signature& signature, const std::string& name, std::span<const int> ranks);
CIRANDA_EXPORTED CheckArguments check_new_set;
CIRANDA_EXPORTED CheckArguments check_old_set;

struct CollectiveInfo {
  // Further properties of some collectives.
  enum Also : unsigned {
    kNothingElse = 0,
    kSame = 1,    // every rank has the same result
    kDirect = 2,  // may use direct rounds: each rank computes its result from all contributions
    kOfPair = 4,  // its process set is a pair of two ranks
  };

  Collective collective;
  std::string_view name;  // in messages, the timeline and the documentation
  Reduces reduces = Reduces::kNothing;
  Who givers = Who::kAll;
  Who receivers = Who::kAll;
  Rows rows = Rows::kWhole;
  Output output = Output::kGiven;
  unsigned also = kNothingElse;
  Subject subject = Subject::kTensors;
  CheckArguments* check_arguments = nullptr;

  // --- derived from the above

  bool is_same_on_all = (also & kSame) != 0;
  bool goes_direct = (also & kDirect) != 0;
  bool is_between_two = (also & kOfPair) != 0;
  bool has_tensors = subject == Subject::kTensors;
  bool is_reduction = reduces != Reduces::kNothing;
  bool is_from_root = givers == Who::kRoot;
  bool has_root = is_from_root || receivers != Who::kAll;  // all ranks must name the same root
  bool is_along_rows = rows != Rows::kWhole;               // scalars are not allowed
  bool first_dim_may_differ = rows == Rows::kJoined;
  bool takes_splits = rows == Rows::kSplit;
  bool allocates_output = output != Output::kGiven;  // the engine does if the caller gave no memory
  // Every rank gets one reduction of all inputs. So calls can be fused, and a rank with all inputs needs no plan.
  bool reduces_for_all = is_reduction && is_same_on_all;
  // A call may be repeated without a new request: see call/call.hpp.
  bool may_be_call = goes_direct && has_tensors;
  bool may_lack_output = allocates_output && !takes_splits;  // of such a call

  constexpr bool gives(bool is_root) const { return includes(givers, is_root); }
  constexpr bool receives(bool is_root) const { return includes(receivers, is_root); }

 private:
  static constexpr bool includes(Who who, bool is_root) { return who == Who::kAll || (who == Who::kRoot) == is_root; }
};

namespace collective_table {

using enum Collective;
using enum Reduces;
using enum Who;
using enum Rows;
using enum Output;
using enum CollectiveInfo::Also;
using Row = CollectiveInfo;

constexpr Row about(Collective collective, std::string_view name, Subject subject, unsigned also = 0,
                    CheckArguments* check = nullptr) {
  return {collective, name, kNothing, kAll, kAll, kWhole, kGiven, also, subject, check};
}

// clang-format off
inline constexpr std::array kRows{
    //                   name             reduces       give   get      rows     output        also
    Row{kAllreduce,     "allreduce",      kAny,         kAll,  kAll,    kWhole,  kGiven,       kSame | kDirect},
    Row{kAllgather,     "allgather",      kNothing,     kAll,  kAll,    kJoined, kMayHaveRoom, kSame | kDirect},
    Row{kBroadcast,     "broadcast",      kNothing,     kRoot, kAll,    kWhole,  kGiven,       kSame | kDirect},
    about(kBarrier, "barrier", Subject::kNothing, kDirect),
    Row{kReducescatter, "reducescatter",  kElementwise, kAll,  kAll,    kCut,    kMayBeGiven,  kDirect},
    Row{kAlltoall,      "alltoall",       kNothing,     kAll,  kAll,    kSplit,  kMayHaveRoom, kDirect},
    Row{kReduce,        "reduce",         kElementwise, kAll,  kRoot,   kWhole,  kGiven},
    Row{kGather,        "gather",         kNothing,     kAll,  kRoot,   kJoined, kAllocated},
    Row{kScatter,       "scatter",        kNothing,     kRoot, kAll,    kSplit,  kAllocated},
    Row{kTransfer,      "send/recv",      kNothing,     kRoot, kOthers, kWhole,  kGiven,       kSame | kOfPair},
    about(kJoin, "join", Subject::kJoin),
    about(kAddProcessSet, "add_process_set", Subject::kSets, 0, check_new_set),
    about(kRemoveProcessSet, "remove_process_set", Subject::kSets, 0, check_old_set),
    about(kAddLane, "add_lane", Subject::kLanes),
    Row{kScan,          "scan",           kElementwise, kAll,  kAll,    kWhole,  kGiven,       kDirect},
};
// clang-format on

}  // namespace collective_table

inline constexpr const auto& kCollectives = collective_table::kRows;
static_assert(kCollectives.size() == kNumCollectives);

constexpr const CollectiveInfo& info(Collective c) { return kCollectives[static_cast<std::size_t>(c)]; }
constexpr std::string_view to_string(Collective c) { return info(c).name; }

constexpr std::optional<Collective> collective_from_wire(std::uint8_t value) {
  if (value >= kNumCollectives) return std::nullopt;
  return static_cast<Collective>(value);
}

}  // namespace ciranda
