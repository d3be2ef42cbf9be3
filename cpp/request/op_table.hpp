// The table of collectives: what each needs, and what ranks must agree on. Values are the wire's and the C ABI's.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ciranda {

enum class Collective : std::uint8_t {
  kAllreduce = 0,
  kAllgather = 1,
  kBroadcast = 2,
  kBarrier = 3,
  kReducescatter = 4,
  kAlltoall = 5,
  kReduce = 6,
  kGather = 7,
  kScatter = 8,
  kTransfer = 9,  // from one rank, the root, to one other: what send and recv are
  kJoin = 10,
  kAddProcessSet = 11,
  kRemoveProcessSet = 12,
  kAddLane = 13,  // the engine's own: a lane of a process set is used for the first time
};
inline constexpr std::size_t kNumCollectives = 14;

struct CollectiveInfo {
  Collective collective;
  std::string_view name;              // in messages, the timeline, and the documentation
  bool is_reduction = false;          // has a reduce op and factors, and refuses element types that the op refuses
  bool has_root = false;              // all ranks must name the same root
  bool has_tensors = true;            // carries at least one tensor
  bool is_along_rows = false;         // joins or cuts along dimension 0: a scalar will not do
  bool first_dim_may_differ = false;  // between ranks; the log tells every rank those of the others
  bool takes_splits = false;          // how many rows go to whom may differ with every call: it travels with the data
  bool allocates_output = false;      // the engine does, where the caller gives no memory or cannot know how much
  bool is_same_on_all = false;        // every rank has the same at the end
};

inline constexpr std::array kCollectives{
    CollectiveInfo{
        .collective = Collective::kAllreduce, .name = "allreduce", .is_reduction = true, .is_same_on_all = true},
    CollectiveInfo{.collective = Collective::kAllgather,
                   .name = "allgather",
                   .is_along_rows = true,
                   .first_dim_may_differ = true,
                   .allocates_output = true,
                   .is_same_on_all = true},
    CollectiveInfo{.collective = Collective::kBroadcast, .name = "broadcast", .has_root = true, .is_same_on_all = true},
    CollectiveInfo{.collective = Collective::kBarrier, .name = "barrier", .has_tensors = false},
    CollectiveInfo{.collective = Collective::kReducescatter,
                   .name = "reducescatter",
                   .is_reduction = true,
                   .is_along_rows = true,
                   .allocates_output = true},
    CollectiveInfo{.collective = Collective::kAlltoall,
                   .name = "alltoall",
                   .is_along_rows = true,
                   .takes_splits = true,
                   .allocates_output = true},
    CollectiveInfo{.collective = Collective::kReduce, .name = "reduce", .is_reduction = true, .has_root = true},
    CollectiveInfo{.collective = Collective::kGather,
                   .name = "gather",
                   .has_root = true,
                   .is_along_rows = true,
                   .first_dim_may_differ = true,
                   .allocates_output = true},
    CollectiveInfo{.collective = Collective::kScatter,
                   .name = "scatter",
                   .has_root = true,
                   .is_along_rows = true,
                   .takes_splits = true,
                   .allocates_output = true},
    CollectiveInfo{.collective = Collective::kTransfer, .name = "send/recv", .has_root = true, .is_same_on_all = true},
    CollectiveInfo{.collective = Collective::kJoin, .name = "join", .has_tensors = false},
    CollectiveInfo{.collective = Collective::kAddProcessSet, .name = "add_process_set", .has_tensors = false},
    CollectiveInfo{.collective = Collective::kRemoveProcessSet, .name = "remove_process_set", .has_tensors = false},
    CollectiveInfo{.collective = Collective::kAddLane, .name = "add_lane", .has_tensors = false},
};
static_assert(kCollectives.size() == kNumCollectives);

constexpr const CollectiveInfo& info(Collective c) { return kCollectives[static_cast<std::size_t>(c)]; }
constexpr std::string_view to_string(Collective c) { return info(c).name; }

constexpr std::optional<Collective> collective_from_wire(std::uint8_t value) {
  if (value >= kNumCollectives) return std::nullopt;
  return static_cast<Collective>(value);
}

}  // namespace ciranda
