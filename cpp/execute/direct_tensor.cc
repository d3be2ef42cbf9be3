#include "execute/direct_tensor.hpp"

#include "base/copy_bytes.hpp"

namespace ciranda {
namespace {

// Those that nobody else needs.
RowBytes own_rows(const DirectTensor& tensor, std::size_t self, std::size_t n_members) {
  const Rows rows = info(tensor.collective).rows;
  if (rows != Rows::kCut && rows != Rows::kSplit) return {};
  if (tensor.own_splits.empty()) return tensor.share_of_rows(self, n_members);
  return part_of_rows(self, tensor.own_splits, tensor.row_bytes);
}

}  // namespace

std::size_t DirectTensor::n_bytes_of(std::size_t member, std::size_t n_members) const {
  if (!rows_of.empty()) return static_cast<std::size_t>(rows_of[member]) * row_bytes;
  if (!all_splits.empty()) return sum_of(all_splits.subspan(member * n_members, n_members)) * row_bytes;
  return n_bytes;
}

// What the others need, without a gap where this member's own rows were: so the members of a pair write to the same
// lines of the buffers that they exchange, each to those that it has read last.
void contribute(const DirectTensor& tensor, std::size_t self, std::size_t n_members, std::byte* to,
                ReadLast read_last) {
  const RowBytes own = own_rows(tensor, self, n_members);
  const std::size_t end = own.begin + own.n_bytes;
  copy_for_others(to, tensor.input, own.begin, read_last);
  copy_for_others(to + own.begin, tensor.input + end, tensor.n_bytes - end, read_last);
}

}  // namespace ciranda
