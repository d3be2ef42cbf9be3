// Reducescatter: each rank reduces the rows that even_splits() gives it.
#include "execute/collectives/functions.hpp"
#include "execute/outputs.hpp"

namespace ciranda {

Result<Work> reducescatter_work(const Participant::Execute& entry, InFlight& in_flight, const Mesh& mesh) {
  const Ticket ticket = entry.requests.front().ticket;
  const Request& request = *in_flight.at(ticket).request;
  return work_with_outputs(ticket, in_flight, nullptr, mesh,
                           [&request, &mesh](const std::vector<std::byte*>& outputs) -> Result<Work> {
                             return Work{plan_reducescatter(request, mesh.size(), mesh.rank(), outputs), nullptr};
                           });
}

// Moves `contributed` to the rows of this member.
void reducescatter_at_hand(const DirectTensor& tensor, std::size_t self, std::span<const std::byte*> contributed,
                           std::byte* output) {
  const std::size_t n_members = contributed.size();
  const RowBytes own = tensor.rows_for(self, self, n_members);
  if (own.n_bytes == 0) return;
  for (std::size_t member = 0; member < n_members; ++member) {
    contributed[member] += tensor.begin_in(member, self, n_members);
  }
  kernels::reduce(tensor.reduction, contributed, {output, own.n_bytes});
}

}  // namespace ciranda
