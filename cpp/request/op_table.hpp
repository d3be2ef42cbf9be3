// The table of collectives: what each needs, and what ranks must agree on. Values are the wire's and the C ABI's.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ciranda {

enum class Collective : std::uint8_t { kAllreduce = 0, kAllgather = 1, kBroadcast = 2, kBarrier = 3 };
inline constexpr std::size_t kNumCollectives = 4;

struct CollectiveInfo {
  Collective collective;
  std::string_view name;      // in messages, the timeline, and the documentation
  bool is_reduction;          // has a reduce op and factors, and refuses element types that the op refuses
  bool has_root;              // all ranks must name the same root
  bool has_tensors;           // carries at least one tensor
  bool first_dim_may_differ;  // ranks may differ in dimension 0, and need at least one dimension
  bool allocates_output;      // the output's size is known only when all ranks are ready
};

inline constexpr std::array kCollectives{
    CollectiveInfo{Collective::kAllreduce, "allreduce", true, false, true, false, false},
    CollectiveInfo{Collective::kAllgather, "allgather", false, false, true, true, true},
    CollectiveInfo{Collective::kBroadcast, "broadcast", false, true, true, false, false},
    CollectiveInfo{Collective::kBarrier, "barrier", false, false, false, false, false},
};
static_assert(kCollectives.size() == kNumCollectives);

constexpr const CollectiveInfo& info(Collective c) { return kCollectives[static_cast<std::size_t>(c)]; }
constexpr std::string_view to_string(Collective c) { return info(c).name; }

constexpr std::optional<Collective> collective_from_wire(std::uint8_t value) {
  if (value >= kNumCollectives) return std::nullopt;
  return static_cast<Collective>(value);
}

}  // namespace ciranda
