// Consistency: whether results that should be the same on all ranks of a lane are, bit for bit.
//
// Each rank remembers a checksum of every such result. Now and then, at the same place of the log, ranks compare one
// number, a checksum of those; only when it differs do they tell each other all, and so find the first result that
// differs, and where. One thread (the holder of the progress lock).
#pragma once

#include <cstdint>
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

  // REQUIRES: the entry is carried out and not completed yet, and all ranks have the same result, also those that stand
  // in for themselves because they have joined.
  void remember(const Participant::Execute& entry);

  // What is to be done to compare all that was remembered. If it differs, the entry's requests fail on all ranks.
  // REQUIRES: as above. This and the entry outlive the work.
  Work compare(const Participant::Execute& entry);

 private:
  struct Remembered {
    std::string what;  // "allreduce 'x', tensor 2 of the group"
    std::uint64_t checksum;
  };

  void remember(const Submission& entry);
  Work look_closer(const Participant::Execute& entry);
  void find_first(const Participant::Execute& entry);
  std::string describe(std::size_t index) const;

  InFlight& in_flight_;
  const Mesh& mesh_;
  std::vector<Remembered> remembered_;
  std::vector<std::uint64_t> told_;
  std::vector<std::uint64_t> heard_;  // [rank][number]
};

}  // namespace ciranda
