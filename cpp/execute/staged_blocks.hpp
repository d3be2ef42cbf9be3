// StagedBlocks: the host memory in which the calls of one entry of the log are staged. By it a plan waits for its own
// inputs alone, and its results are copied to their device while later plans are executed.
//
// A plan may have pieces elsewhere, as those of calls in host memory: these are there.
//
// Called by DataPlane, which owns it; one thread (the holder of the progress lock).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "base/thread_annotations.hpp"
#include "execute/staged.hpp"
#include "fuse/plan.hpp"

namespace ciranda {

class StagedBlocks {
 public:
  // `staged` outlives this, or is forgotten by clear(). REQUIRES: it is staged.
  void add(Staged& staged);
  void clear() { blocks_.clear(); }

  // A call of which inputs of the plan have not arrived. Null: all are here.
  const Staged* awaited_by(const Plan& plan) const REQUIRES(progress_lock);
  // Whether all are here; an error if a device has failed.
  Result<bool> has_inputs(const Plan& plan) const REQUIRES(progress_lock);
  // Begins to copy the results of the plan to their devices. REQUIRES: it is executed.
  void put_results(const Plan& plan) REQUIRES(progress_lock);

 private:
  // The call in whose block this is; null: in none.
  Staged* at(const std::byte* memory) const;
  template <typename Byte, typename Visit>
  void visit_pieces(const PieceList<Byte>& one, const std::vector<PieceList<Byte>>& by_rank, Visit visit) const
      REQUIRES(progress_lock);

  std::vector<Staged*> blocks_;  // in the order of their memory
};

}  // namespace ciranda
