// NativeBackend: the backend of host memory, on the CPU. A policy table says which algorithms there are; where there
// are several, or several lengths of their segments, the cost model chooses, corrected by what calls of this job took,
// or the settings do.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "backend/backend.hpp"
#include "backend/cost_model.hpp"
#include "backend/native_options.hpp"
#include "backend/online_autotuner.hpp"
#include "backend/policy.hpp"
#include "collective/arena_session.hpp"
#include "collective/rounding.hpp"
#include "collective/running_collective.hpp"
#include "collective/scratch.hpp"
#include "fuse/plan.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

class NativeBackend final : public Backend {
 public:
  // The mesh outlives the backend.
  NativeBackend(Mesh& mesh, NativeOptions options);

  void use(SharedArena& arena) override;
  std::unique_ptr<RunningCollective> start(const Plan& plan) override;
  void combine(const Plan& plan, std::span<const std::byte*> inputs) const override;
  std::vector<std::uint64_t> news() const override { return autotuner_.news(); }
  void conclude(std::span<const std::uint64_t> news_of_all) override { autotuner_.conclude(news_of_all); }
  std::vector<Candidate> candidates(Collective collective, std::size_t n_bytes) const override;

 private:
  // Calls from which the same is learned: of sizes above a power of two, up to the next. REQUIRES: not empty.
  struct Kind {
    std::uint32_t number;
    std::size_t middle_bytes;
    std::size_t most_bytes;
    Kind(std::size_t n_bytes, const Policy& policy);
  };
  struct Tried {
    std::vector<Pick> picks;
    std::size_t by_model = 0;
  };

  Policy policy(bool combines_in_parts, const Rounding& rounding) const;
  Rounding rounding_of(const Plan& plan) const;
  bool learns_from(const Plan& plan) const;
  const Tried& tried(const Policy& policy, const Kind& kind);

  Mesh& mesh_;
  NativeOptions options_;
  CostModel costs_;
  OnlineAutotuner autotuner_;
  std::unordered_map<std::uint32_t, Tried> tried_;  // by the number of a kind
  int ranks_per_host_;                              // 0: hosts are not alike (hosts.hpp)
  std::vector<int> hosts_;                          // by rank
  HostParts host_parts_;
  std::optional<ArenaSession> session_;
  Scratch scratch_;
};

}  // namespace ciranda
