// WorldParts: what all lanes of a world have in common. It outlives them, and the progress loop that moves them.
//
// Threads: the holder of the progress lock, and any for what says so.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "agree/auto_names.hpp"
#include "agree/process_sets.hpp"
#include "backend/registry.hpp"
#include "base/config.hpp"
#include "base/log.hpp"
#include "call/output_memory.hpp"
#include "engine/control_plane.hpp"
#include "observe/recorder.hpp"
#include "transport/lane_mux.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

struct WorldParts {
  // Given to it; these outlive it.
  Mesh& mesh;
  const Config config;
  Recorder& recorder;
  const std::span<const BackendRow> backends;

  // Any thread's, as their types say.
  const Logger logger{mesh.rank(), log_level_from(config.log_level)};
  Names names{};  // but for those that are automatic
  ProcessSets sets{mesh.size()};
  const OutputMemory output_memory{};
  std::atomic<std::uint64_t> n_met{0};  // calls that were carried out by direct rounds
  std::atomic<bool> has_failed{false};  // see Engine::has_failed

  LaneMux mux{mesh};
  ControlPlane control{mesh};
};

}  // namespace ciranda
