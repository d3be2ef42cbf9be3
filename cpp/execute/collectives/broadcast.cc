// Broadcast, and the transfer between two ranks, in which only one rank gets a result.
#include "execute/collectives/functions.hpp"

namespace ciranda {

Result<Work> broadcast_work(const Participant::Execute& entry, InFlight& in_flight, const Mesh& mesh) {
  const Request& request = *in_flight.at(entry.requests.front().ticket).request;
  Plan plan = plan_broadcast(request);
  plan.root = root_member(request.signature, mesh);
  if (!info(request.signature.collective).receives(plan.root == mesh.rank())) plan.output = {};
  return Work{{std::move(plan)}, nullptr};
}

// `output` is null on a rank that has no memory for the result.
void broadcast_at_hand(const DirectTensor& tensor, std::size_t /*self*/, std::span<const std::byte*> contributed,
                       std::byte* output) {
  if (output != nullptr) copy_unless_there(output, contributed.front(), tensor.n_bytes);
}

}  // namespace ciranda
