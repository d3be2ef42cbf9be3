#include "call/memory_use.hpp"

#include <algorithm>

namespace ciranda {

std::size_t n_bytes_read(const Request& request, std::size_t tensor, int rank) {
  const Signature& signature = request.signature;
  const CollectiveInfo& row = info(signature.collective);
  if (row.takes_splits) return sum_of(request.splits[tensor]) * signature.tensors[tensor].row_bytes();
  const bool is_from_root = row.has_root && row.is_same_on_all;
  return is_from_root && signature.root != rank ? 0 : signature.tensors[tensor].n_bytes();
}

std::size_t n_bytes_written(const Request& request, std::size_t tensor, std::span<const int> ranks, int rank) {
  const Signature& signature = request.signature;
  const TensorSignature& own = signature.tensors[tensor];
  const CollectiveInfo& row = info(signature.collective);
  if (!row.allocates_output) return has_result(signature, rank) ? own.n_bytes() : 0;
  if (keeps_rows(request)) return n_bytes_read(request, tensor, rank);
  if (row.first_dim_may_differ) return request.has_room_for_all && !row.has_root ? ranks.size() * own.n_bytes() : 0;
  if (!row.is_reduction) return 0;
  const auto member = std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin();
  const auto rows = even_splits(own.shape.front(), static_cast<int>(ranks.size()));
  return static_cast<std::size_t>(rows[static_cast<std::size_t>(member)]) * own.row_bytes();
}

}  // namespace ciranda
