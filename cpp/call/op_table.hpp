// The table of collectives: what each needs, and what ranks must agree on. Values are the C ABI's.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

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
  kTransfer = CIRANDA_TRANSFER,  // from one rank, the root, to one other: what send and recv are
  kJoin = CIRANDA_JOIN,
  kAddProcessSet = CIRANDA_ADD_PROCESS_SET,
  kRemoveProcessSet = CIRANDA_REMOVE_PROCESS_SET,
  kAddLane = 13,  // the engine's own: a lane of a process set is used for the first time
  kScan = CIRANDA_SCAN,
};
inline constexpr std::size_t kNumCollectives = 15;

// What a call is about.
enum class Subject : std::uint8_t {
  kTensors,
  kNothing,  // that all ranks have come
  kJoin,
  kSets,   // which process sets there are
  kLanes,  // which lanes there are
};

// Which ranks give something to a call, or get something from it.
enum class Who : std::uint8_t { kAll, kRoot, kOthers };  // kOthers: all but the root

enum class Reduces : std::uint8_t {
  kNothing,      // no reduce op and no factors
  kElementwise,  // refuses element types that the op refuses
  kAny,          // also ops that are not elementwise, and averages with weights
};

// What becomes of the rows of tensors: their elements along dimension 0.
enum class Rows : std::uint8_t {
  kWhole,   // nothing: a scalar will do
  kJoined,  // one rank's behind the other's; ranks may have different numbers, and the log tells each those of all
  kCut,     // each rank gets as many as even_splits() says
  kSplit,   // each gets as many as the caller says; that may differ with every call and travels with the data
};

// Where a result is.
enum class Output : std::uint8_t {
  kGiven,        // in memory of the caller, as large as the input
  kMayBeGiven,   // ... where the caller has given some; or the engine allocates
  kMayHaveRoom,  // ... where the caller says that there is room (Request::has_room_for_all); or the engine allocates
  kAllocated,    // in memory that the engine allocates
};

struct Signature;
class Status;

// InvalidArgument unless such a call can be. `ranks`: of its process set.
using CheckArguments = Status(const Signature& signature, const std::string& name, std::span<const int> ranks);
CheckArguments check_new_set;
CheckArguments check_old_set;

struct CollectiveInfo {
  // What else there is to say of some.
  enum Also : unsigned {
    kNothingElse = 0,
    kSame = 1,    // every rank has the same at the end
    kDirect = 2,  // goes by direct rounds too: each rank makes its result of what all contribute
    kOfPair = 4,  // its process set is the pair of two ranks
  };

  Collective collective;
  std::string_view name;  // in messages, the timeline, and the documentation
  Reduces reduces = Reduces::kNothing;
  Who givers = Who::kAll;
  Who receivers = Who::kAll;
  Rows rows = Rows::kWhole;
  Output output = Output::kGiven;
  unsigned also = kNothingElse;
  Subject subject = Subject::kTensors;
  CheckArguments* check_arguments = nullptr;

  // --- follows from the above

  bool is_same_on_all = (also & kSame) != 0;
  bool goes_direct = (also & kDirect) != 0;
  bool is_between_two = (also & kOfPair) != 0;
  bool has_tensors = subject == Subject::kTensors;
  bool is_reduction = reduces != Reduces::kNothing;
  bool is_from_root = givers == Who::kRoot;
  bool has_root = is_from_root || receivers != Who::kAll;  // all ranks must name the same root
  bool is_along_rows = rows != Rows::kWhole;               // a scalar will not do
  bool first_dim_may_differ = rows == Rows::kJoined;
  bool takes_splits = rows == Rows::kSplit;
  bool allocates_output = output != Output::kGiven;  // the engine does, where there is no memory of the caller
  // One reduction of all inputs is what every rank gets: what several calls reduce may travel as one, and who has all
  // inputs needs no plan.
  bool reduces_for_all = is_reduction && is_same_on_all;
  // A call may be made again without a new request: see call/call.hpp.
  bool may_be_call = goes_direct && has_tensors;
  bool may_lack_output = allocates_output && !takes_splits;  // such a call

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
