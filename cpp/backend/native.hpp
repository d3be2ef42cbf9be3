// NativeBackend: the backend of host memory, on the CPU. The table of algorithms lists the candidates. Among several
// algorithms or segment sizes the settings choose, or the cost model, corrected by measured times of this job's calls.
// It also has what no other backend does: the arena, inputs of all ranks combined here, and exchanged measurements.
// Called by DataPlane, through Backends; one thread (the holder of the progress lock).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "backend/backend.hpp"
#include "backend/candidate.hpp"
#include "backend/cost_model.hpp"
#include "backend/native_options.hpp"
#include "backend/online_autotuner.hpp"
#include "backend/policy.hpp"
#include "collective/arena_session.hpp"
#include "collective/rounding.hpp"
#include "collective/running_collective.hpp"
#include "collective/scratch.hpp"
#include "fuse/plan.hpp"
#include "transport/arena.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

class NativeBackend final : public Backend {
 public:
  // The mesh outlives the backend.
  NativeBackend(Mesh& mesh, NativeOptions options);

  Started start(const Plan& plan) override;
  void abort() override { mesh_.abandon(); }
  // The position in the arena, for all backends of the lane. Null if there is no arena, or one without slots.
  ArenaSession* session() { return session_ && session_->slot_bytes() > 0 ? &*session_ : nullptr; }

  // Uses this arena from the next plan on. All ranks of the mesh call this before the same plan. The arena outlives the
  // backend.
  void use(SharedArena& arena);

  // Executes an allreduce of which this rank has all inputs, in rank order. An input may lie in the memory of the
  // result. Advances the pointers.
  void combine(const Plan& plan, std::span<const std::byte*> inputs) const;

  // This rank's measurements, if a trial has ended; else empty. All ranks call news() at the same position in the log,
  // when all earlier plans are done. Then all call conclude() with the news of all ranks, concatenated in rank order.
  std::vector<std::uint64_t> news() const { return autotuner_.news(); }
  // The candidate that a trial has led to, for allreduces of more than half of `most_bytes`.
  struct Tuned {
    std::size_t most_bytes;
    Candidate chosen;
    bool is_by_model;  // the cost model's choice
  };
  std::vector<Tuned> conclude(std::span<const std::uint64_t> news_of_all);

  // All candidates for a collective of n_bytes (of float32, if the type matters), with the chosen one marked.
  std::vector<Candidate> candidates(Collective collective, std::size_t n_bytes) const;

 private:
  // A class of calls that are measured together: sizes above a power of two, up to the next. REQUIRES: n_bytes > 0.
  struct Kind {
    static constexpr std::uint32_t kPerSize = 4;  // numbers of kinds of the same size
    std::uint32_t number;
    std::size_t middle_bytes;
    std::size_t most_bytes;
    Kind(std::size_t n_bytes, const Policy& policy);
    static std::size_t most_bytes_of(std::uint32_t number) { return std::size_t{1} << number / kPerSize; }
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
  int ranks_per_host_;                              // 0: hosts differ (hosts.hpp)
  std::vector<int> hosts_;                          // by rank
  HostParts host_parts_;
  std::optional<ArenaSession> session_;
  Scratch scratch_;
};

}  // namespace ciranda
