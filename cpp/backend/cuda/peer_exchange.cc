#include "backend/cuda/peer_exchange.hpp"

#include <utility>

namespace ciranda::cuda {
namespace {

std::vector<PeerStage> stages_of(const Plan& plan, int self) {
  using enum PeerStage::Does;
  using Counter = PeerStage::Counter;
  const PeerStage pack{.does = kPack, .publishes = Counter::kPacked};
  const PeerStage unpack{.does = kUnpack, .awaits = Counter::kPacked, .of = plan.root};
  if (plan.root >= 0) return {plan.root == self ? pack : unpack};  // it has what is for the root itself, too
  return plan.is_receiver(self) ? std::vector{pack, unpack} : std::vector{pack};
}

}  // namespace

PeerExchange::PeerExchange(PeerGroup& group, const Plan& plan)
    : PeerCollective(group, plan, plan.input_by_rank.empty() ? group.slot_bytes : share_bytes(group)),
      stages_(stages_of(plan, group.session.member())),
      is_shared_out_(!plan.input_by_rank.empty()) {}

PeerStream::Work PeerExchange::work(Does what) const { return what == Does::kPack ? pack() : unpack(); }

PeerStream::Work PeerExchange::pack() const {
  Copies copies;
  const InputPieces& own = plan().input_for(self());
  const bool is_only_receiver = plan().receivers == std::vector{self()};
  if (!is_shared_out_ && !is_only_receiver) add(copies, own, offset(), slot(self()), n_bytes_of(own.n_bytes()));
  for (int member = 0; is_shared_out_ && member < n_members(); ++member) {
    if (member != self()) add_share(copies, member);
  }
  add(copies, own, output_of(self()), offset(), n_bytes_of(output_of(self()).n_bytes()));
  return copy(std::move(copies));
}

PeerStream::Work PeerExchange::unpack() const {
  Copies copies;
  for (int member = 0; member < n_members(); ++member) {
    if (member == self()) continue;
    const OutputPieces& output = output_of(member);
    const std::byte* const from = is_shared_out_ ? share_of_slot(member, self()) : slot(member);
    add(copies, from, output, offset(), n_bytes_of(output.n_bytes()));
  }
  return copy(std::move(copies));
}

}  // namespace ciranda::cuda
