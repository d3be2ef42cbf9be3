// WorldParts: the objects that all lanes of a world share. It outlives the lanes and the progress loop.
//
// Called by Engine, which owns it, ProgressThreads, ProgressLoop, Lanes, Lane; any thread, except where a member is
// guarded.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "agree/auto_names.hpp"
#include "agree/process_sets.hpp"
#include "agree/turns.hpp"
#include "backend/registry.hpp"
#include "base/config.hpp"
#include "base/log.hpp"
#include "base/open_log.hpp"
#include "base/thread_annotations.hpp"
#include "call/output_memory.hpp"
#include "engine/control_plane.hpp"
#include "execute/unended.hpp"
#include "execute/wake.hpp"
#include "execute/way_expected.hpp"
#include "observe/counters.hpp"
#include "observe/recorder.hpp"
#include "transport/arena.hpp"
#include "transport/lane_mux.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

struct WorldParts {
  // Given by the creator; the references outlive this.
  Mesh& mesh;
  const Config config;
  Recorder& recorder;
  const std::span<const BackendRow> backends;

  Counters counters{config.page_file, mesh.rank(), mesh.size()};
  const Logger logger = open_log_anyhow(config, mesh.rank());
  Names names{};
  ProcessSets sets{mesh.size()};
  const OutputMemory output_memory{};
  const std::shared_ptr<Wake> wake = std::make_shared<Wake>(mesh);  // for the threads of devices
  WayExpected way_expected{config, mesh};
  Unended unended{};
  std::atomic<std::uint64_t> n_direct{0};  // calls executed by direct rounds
  std::atomic<bool> has_failed{false};     // see Engine::has_failed

  // Any thread: puts on the page how much memory is kept now.
  void note_memory() {
    const SharedArena* arena = mesh.arena();
    counters.note_memory(output_memory.n_kept_bytes(), arena != nullptr ? arena->regions().n_own_bytes() : 0);
  }

  LaneMux mux GUARDED_BY(progress_lock){mesh};
  ControlPlane control GUARDED_BY(progress_lock){mesh, config.relays};
  Turns turns GUARDED_BY(progress_lock){};
};

}  // namespace ciranda
