// Consistency: checks that results which should be equal on all ranks of a lane are equal, bit for bit.
//
// Each rank keeps a checksum of every such result. At certain positions of the log, the same on all ranks, the ranks
// compare one number, a checksum of these checksums. Only if it differs do they exchange all of them, to find the first
// result that differs, and on which rank. Called by DataPlane; one thread (the holder of the progress lock).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "agree/participant.hpp"
#include "execute/in_flight.hpp"
#include "execute/work.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

class Consistency {
 public:
  // Both outlive this.
  Consistency(InFlight& in_flight, const Mesh& mesh) : in_flight_(in_flight), mesh_(mesh) {}

  // Returns the work that keeps the checksums of the entry's results, computed on their device if they are there, and
  // then, if the entry says so, compares all that are kept. If they differ, the entry's requests fail on all ranks.
  // REQUIRES: the entry is executed but not completed yet, and all ranks should have the same result, including those
  // that have joined and use scratch memory. This object and the entry outlive the work.
  Work check(const Participant::Execute& entry);

 private:
  struct Remembered {
    std::string what;  // "allreduce 'x', tensor 2 of the group"
    std::uint64_t checksum;
  };

  void remember(const Submission& entry, const std::vector<std::uint64_t>& checksums);
  Result<bool> are_summed(const Participant::Execute& entry) const REQUIRES(progress_lock);
  Work remember_and_compare(const Participant::Execute& entry);
  Work compare(const Participant::Execute& entry);
  Work look_closer(const Participant::Execute& entry);
  void find_first(const Participant::Execute& entry);
  std::string describe(std::size_t index) const;

  InFlight& in_flight_;
  const Mesh& mesh_;
  std::vector<Remembered> remembered_;
  std::vector<std::uint64_t> sent_;
  std::vector<std::uint64_t> received_;  // [rank][number]
};

}  // namespace ciranda
