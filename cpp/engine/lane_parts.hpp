// LaneParts: references that the parts of one lane share, to objects that the lane owns or that outlive it.
// Called by Lane, AnswerWatch, RoundsInMemory, RoundsByMessages; one thread (the holder of the progress lock).
#pragma once

#include <atomic>
#include <cstdint>

#include "agree/auto_names.hpp"
#include "agree/participant.hpp"
#include "base/thread_annotations.hpp"
#include "engine/control_plane.hpp"
#include "engine/lane_log.hpp"
#include "engine/reports.hpp"
#include "execute/data_plane.hpp"
#include "execute/in_flight.hpp"
#include "transport/lane_mesh.hpp"

namespace ciranda {

struct LaneParts {
  // One thread at a time writes this counter, so it needs no atomic increment.
  void count_direct_round() const REQUIRES(progress_lock) {
    n_direct.store(n_direct.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  LaneId id;
  LaneMesh& mesh;
  ControlPlane& control;
  Names& names;
  InFlight& in_flight;
  Participant& participant;
  LaneLog& log;
  Reports& reports;
  DataPlane& data;
  std::atomic<std::uint64_t>& n_direct;  // calls executed by direct rounds
};

}  // namespace ciranda
