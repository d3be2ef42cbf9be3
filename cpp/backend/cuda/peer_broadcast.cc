#include "backend/cuda/peer_broadcast.hpp"

#include <utility>

namespace ciranda::cuda {

PeerBroadcast::PeerBroadcast(PeerGroup& group, const Plan& plan)
    : PeerCollective(group, plan, group.slot_bytes),
      stage_(group.session.member() == plan.root
                 ? kPack
                 : Stage{.does = Does::kUnpack, .awaits = Counter::kPacked, .of = plan.root}) {}

PeerStream::Work PeerBroadcast::work(Does what) const {
  Copies copies;
  if (what == Does::kPack) {
    add(copies, plan().input, offset(), slot(self()), n_bytes());
    if (plan().output.n_bytes() != 0) add(copies, plan().input, plan().output, offset(), n_bytes());  // who sends: none
  } else {
    add(copies, slot(plan().root), plan().output, offset(), n_bytes());
  }
  return copy(std::move(copies));
}

}  // namespace ciranda::cuda
