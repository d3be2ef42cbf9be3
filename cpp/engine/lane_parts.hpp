// LaneParts: what the parts of one lane have in common: views of what the lane owns, or of what outlives it.
#pragma once

#include <atomic>
#include <cstdint>

#include "agree/auto_names.hpp"
#include "agree/participant.hpp"
#include "engine/control_plane.hpp"
#include "engine/lane_log.hpp"
#include "engine/reports.hpp"
#include "execute/data_plane.hpp"
#include "execute/in_flight.hpp"
#include "transport/lane_mesh.hpp"

namespace ciranda {

struct LaneParts {
  // With the progress lock, which all lanes have in common: no locked instruction is needed.
  void count_met() const { n_met.store(n_met.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }

  LaneId id;
  LaneMesh& mesh;
  ControlPlane& control;
  Names& names;
  InFlight& in_flight;
  Participant& participant;
  LaneLog& log;
  Reports& reports;
  DataPlane& data;
  std::atomic<std::uint64_t>& n_met;  // calls that were carried out by direct rounds
};

}  // namespace ciranda
