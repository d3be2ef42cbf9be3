// Allgather and gather: the rows of all ranks, in rank order.
#include <utility>

#include "execute/collectives/functions.hpp"
#include "execute/outputs.hpp"

namespace ciranda {

Result<Work> gather_work(const Participant::Execute& entry, InFlight& in_flight, const Mesh& mesh) {
  const Participant::Ready& ready = entry.requests.front();
  const Request& request = *in_flight.at(ready.ticket).request;
  const FirstDims* const rows = ready.first_dims.get();  // null where the log lacks them, which is refused below
  return work_with_outputs(ready.ticket, in_flight, rows, mesh,
                           [&request, rows, &mesh](const std::vector<std::byte*>& outputs) -> Result<Work> {
                             Plan plan = plan_gather(request, *rows, outputs);
                             if (info(request.signature.collective).has_root)
                               plan.receivers = {root_member(request.signature, mesh)};
                             return Work{{std::move(plan)}, nullptr};
                           });
}

// Copies this member's rows first: if the output is the input, they may lie where the rows of another member will be.
void gather_at_hand(const DirectTensor& tensor, std::size_t self, std::span<const std::byte*> contributed,
                    std::byte* output) {
  const auto copy_from = [&](std::size_t member) {
    const RowBytes rows = part_of_rows(member, tensor.rows_of, tensor.row_bytes);
    copy_unless_there(output + rows.begin, contributed[member], rows.n_bytes);
  };
  copy_from(self);
  for (std::size_t member = 0; member < contributed.size(); ++member) {
    if (member != self) copy_from(member);
  }
}

}  // namespace ciranda
