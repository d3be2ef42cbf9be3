#include "engine/meeting_data.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "base/copy_bytes.hpp"
#include "engine/outputs.hpp"
#include "engine/work.hpp"
#include "kernels/kernels.hpp"
#include "negotiate/meeting_places.hpp"

namespace ciranda {
namespace {

std::int64_t sum(std::span<const std::int64_t> rows) {
  return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}

// --- one tensor. Bytes may be where they are wanted already: then both places are the same.

void copy_unless_there(std::byte* to, const std::byte* from, std::size_t n_bytes) {
  if (to != from) copy_bytes(to, from, n_bytes);
}

// Where in a tensor some of its rows lie.
struct RowBytes {
  std::size_t begin;
  std::size_t n_bytes;
};

// Those of a member, where rows are cut as even_splits() does.
RowBytes share_of_rows(std::int64_t n_rows, std::size_t row_bytes, std::size_t member, std::size_t n_members) {
  const auto n_ranks = static_cast<std::int64_t>(n_members);
  const auto rank = static_cast<std::int64_t>(member);
  const std::int64_t first = rank * (n_rows / n_ranks) + std::min(rank, n_rows % n_ranks);
  const std::int64_t n_own = n_rows / n_ranks + (rank < n_rows % n_ranks ? 1 : 0);
  return {static_cast<std::size_t>(first) * row_bytes, static_cast<std::size_t>(n_own) * row_bytes};
}

// What the others need, without a gap where this member's own rows were: so the members of a pair write to the same
// lines of the buffers that they exchange, each to those that it has read last.
void contribute_all_but(const RowBytes& own, const std::byte* input, std::size_t n_bytes, std::byte* to) {
  const std::size_t end = own.begin + own.n_bytes;
  copy_for_others(to, input, own.begin);
  copy_for_others(to + own.begin, input + end, n_bytes - end);
}

// Where a member's rows begin in what another has so contributed; its own input has no gap.
std::size_t begin_in(std::size_t rank, const RowBytes& of_rank, std::size_t self, const RowBytes& of_self) {
  return of_self.begin - (rank < self ? of_rank.n_bytes : 0);
}

// Its own rows first: they may lie where those of another are to be (an output that is the input).
void gather_rows(std::byte* to, std::span<const std::byte* const> from, std::span<const std::int64_t> rows,
                 std::size_t row_bytes, std::size_t self) {
  const auto copy_from = [&](std::size_t rank) {
    const auto n_before = static_cast<std::size_t>(sum(rows.first(rank)));
    copy_unless_there(to + n_before * row_bytes, from[rank], static_cast<std::size_t>(rows[rank]) * row_bytes);
  };
  copy_from(self);
  for (std::size_t rank = 0; rank < from.size(); ++rank) {
    if (rank != self) copy_from(rank);
  }
}

// Moves `from` to the rows of this member.
void reduce_rows(const kernels::Reduction& reduction, std::byte* to, std::span<const std::byte*> from,
                 std::int64_t n_rows, std::size_t row_bytes, std::size_t self) {
  const RowBytes own = share_of_rows(n_rows, row_bytes, self, from.size());
  if (own.n_bytes == 0) return;
  for (std::size_t rank = 0; rank < from.size(); ++rank) {
    from[rank] += begin_in(rank, share_of_rows(n_rows, row_bytes, rank, from.size()), self, own);
  }
  kernels::reduce(reduction, from, to, own.n_bytes / size_of(reduction.dtype));
}

// Those for a rank, where so many go to each.
RowBytes rows_for(std::size_t rank, std::span<const std::int64_t> rows, std::size_t row_bytes) {
  return {static_cast<std::size_t>(sum(rows.first(rank))) * row_bytes,
          static_cast<std::size_t>(rows[rank]) * row_bytes};
}

// As many to each.
void exchange_rows(std::byte* to, std::span<const std::byte* const> from, std::size_t n_bytes, std::size_t self) {
  for (std::size_t rank = 0; rank < from.size(); ++rank) {
    const std::size_t begin = begin_in(rank, {rank * n_bytes, n_bytes}, self, {self * n_bytes, n_bytes});
    copy_unless_there(to + rank * n_bytes, from[rank] + begin, n_bytes);
  }
}

// --- a request

class MeetingResult {
 public:
  MeetingResult(const InFlight::Entry& entry, std::vector<const std::byte*> contributed, const Mesh& mesh,
                const OutputMemory& memory)
      : request_(entry.request),
        operation_(*entry.operation),
        from_(std::move(contributed)),
        mesh_(mesh),
        memory_(memory),
        n_ranks_(static_cast<std::size_t>(mesh.size())),
        self_(static_cast<std::size_t>(mesh.rank())) {}

  Status allreduce() {
    for (std::size_t i = 0; i < tensors().size(); ++i) {
      kernels::reduce(reduction(i), sources(i, self_), request_.memory[i].output, count_of(tensors()[i].shape));
      skip(whole_lines(tensors()[i].n_bytes()));
    }
    return {};
  }

  Status broadcast() {
    const bool is_root = root_member(request_.signature, mesh_) == mesh_.rank();
    for (std::size_t i = 0; i < tensors().size(); ++i) {
      std::byte* output = request_.memory[i].output;
      const std::byte* input = is_root ? sources(i, 0).front() : from_.front();
      if (output != nullptr) copy_unless_there(output, input, tensors()[i].n_bytes());
      skip(whole_lines(tensors()[i].n_bytes()));
    }
    return {};
  }

  Status allgather(const FirstDims& first_dims) {
    Result<Outputs> outputs = outputs_of_gather(request_, first_dims, mesh_, memory_);
    if (!outputs.ok()) return outputs.status();
    for (std::size_t i = 0; i < tensors().size(); ++i) {
      const std::size_t row_bytes = tensors()[i].row_bytes();
      gather_rows(outputs.value().memory[i], sources(i, self_), first_dims[i], row_bytes, self_);
      for (std::size_t rank = 0; rank < n_ranks_; ++rank) {
        from_[rank] += whole_lines(static_cast<std::size_t>(first_dims[i][rank]) * row_bytes);
      }
    }
    operation_.set_outputs(std::move(outputs).value().buffers);
    return {};
  }

  Status reducescatter() {
    Result<Outputs> outputs = outputs_of_reducescatter(request_, mesh_, memory_);
    if (!outputs.ok()) return outputs.status();
    for (std::size_t i = 0; i < tensors().size(); ++i) {
      const TensorSignature& tensor = tensors()[i];
      reduce_rows(reduction(i), outputs.value().memory[i], sources(i, self_), tensor.shape.front(), tensor.row_bytes(),
                  self_);
      skip(whole_lines(tensor.n_bytes()));
    }
    operation_.set_outputs(std::move(outputs).value().buffers);
    return {};
  }

  Status even_alltoall() {
    Outputs outputs = outputs_of_even_exchange(request_);
    for (std::size_t i = 0; i < tensors().size(); ++i) {
      const std::size_t n_bytes = bytes_of_rows(request_.splits[i], tensors()[i]);
      exchange_rows(outputs.memory[i], sources(i, self_), n_bytes / n_ranks_, self_);
      skip(whole_lines(n_bytes));
    }
    operation_.set_outputs(std::move(outputs.buffers));
    return {};
  }

  Status alltoall() {
    if (has_fixed_rows(request_.signature)) return even_alltoall();
    const std::vector<FirstDims> splits = read_splits();
    Result<Outputs> outputs = outputs_of_alltoall(splits);
    if (!outputs.ok()) return outputs.status();
    for (std::size_t i = 0; i < tensors().size(); ++i) {
      const std::size_t row_bytes = tensors()[i].row_bytes();
      const std::span<const std::byte*> from = sources(i, self_);
      std::byte* to = outputs.value().memory[i];
      for (std::size_t rank = 0; rank < n_ranks_; ++rank) {
        const std::vector<std::int64_t>& rows = splits[rank][i];
        const RowBytes for_self = rows_for(self_, rows, row_bytes);
        copy_bytes(to, from[rank] + begin_in(rank, rows_for(rank, rows, row_bytes), self_, for_self), for_self.n_bytes);
        to += for_self.n_bytes;
        from_[rank] += whole_lines(static_cast<std::size_t>(sum(rows)) * row_bytes);
      }
    }
    operation_.set_outputs(std::move(outputs).value().buffers);
    return {};
  }

 private:
  const std::vector<TensorSignature>& tensors() const { return request_.signature.tensors; }

  kernels::Reduction reduction(std::size_t i) const {
    const Signature& signature = request_.signature;
    return {tensors()[i].dtype, signature.op, signature.prescale, signature.postscale, mesh_.size(), {}};
  }

  // Of the tensor that is next. The one at `own` is this rank's, and lies where the caller has it.
  std::span<const std::byte*> sources(std::size_t i, std::size_t own) {
    sources_ = from_;
    sources_[own] = request_.memory[i].input;
    return sources_;
  }

  void skip(std::size_t n_bytes) {
    for (const std::byte*& source : from_) source += n_bytes;
  }

  // [rank][tensor][to rank]
  std::vector<FirstDims> read_splits() {
    std::vector<FirstDims> splits(n_ranks_, FirstDims(tensors().size(), std::vector<std::int64_t>(n_ranks_)));
    for (std::size_t rank = 0; rank < n_ranks_; ++rank) {
      const std::byte* at = from_[rank];
      for (std::vector<std::int64_t>& rows : splits[rank]) {
        std::memcpy(rows.data(), at, n_ranks_ * sizeof(std::int64_t));
        at += n_ranks_ * sizeof(std::int64_t);
      }
    }
    skip(bytes_of_splits(tensors().size(), n_ranks_));
    return splits;
  }

  Result<Outputs> outputs_of_alltoall(const std::vector<FirstDims>& splits) const {
    FirstDims rows_from(tensors().size());
    std::vector<std::int64_t> n_rows;
    for (std::size_t i = 0; i < rows_from.size(); ++i) {
      for (const FirstDims& of_rank : splits) rows_from[i].push_back(of_rank[i][self_]);
      const auto n = sum_of_rows(rows_from[i]);
      if (!n) return Status::invalid_argument("alltoall '" + request_.name + "': a tensor cannot have so many rows.");
      n_rows.push_back(*n);
    }
    Outputs outputs;
    if (Status status = outputs.allocate(memory_, request_, n_rows, mesh_); !status.ok()) return status;
    outputs.add_received_splits(rows_from);
    return outputs;
  }

  const Request& request_;
  Operation& operation_;
  std::vector<const std::byte*> from_;  // where each member's next tensor lies
  std::vector<const std::byte*> sources_;
  const Mesh& mesh_;
  const OutputMemory& memory_;
  std::size_t n_ranks_;
  std::size_t self_;
};

std::byte* write_splits(const Request& request, std::byte* to) {
  std::byte* at = to;
  for (const std::vector<std::int64_t>& rows : request.splits) {
    std::memcpy(at, rows.data(), rows.size() * sizeof(std::int64_t));
    at += rows.size() * sizeof(std::int64_t);
  }
  return to + bytes_of_splits(request.splits.size(), request.splits.front().size());
}

// Rows that this member contributes to itself.
RowBytes own_rows(const Request& request, std::size_t i, const Mesh& mesh) {
  const TensorSignature& tensor = request.signature.tensors[i];
  const auto self = static_cast<std::size_t>(mesh.rank());
  if (request.signature.collective == Collective::kReducescatter) {
    return share_of_rows(tensor.shape.front(), tensor.row_bytes(), self, static_cast<std::size_t>(mesh.size()));
  }
  if (request.signature.collective != Collective::kAlltoall) return {};
  return rows_for(self, request.splits[i], tensor.row_bytes());
}

// --- a call

RowBytes own_rows(const Call& call, const Mesh& mesh) {
  const bool has_own = call.collective == Collective::kReducescatter || call.collective == Collective::kAlltoall;
  if (!has_own) return {};
  return share_of_rows(call.shape.front(), call.row_bytes(), static_cast<std::size_t>(mesh.rank()),
                       static_cast<std::size_t>(mesh.size()));
}

}  // namespace

void contribute_to_meeting(const Request& request, const Mesh& mesh, std::byte* to) {
  const Signature& signature = request.signature;
  const bool is_alltoall = signature.collective == Collective::kAlltoall;
  if (is_alltoall && !has_fixed_rows(signature)) to = write_splits(request, to);
  for (std::size_t i = 0; i < request.memory.size(); ++i) {
    const TensorSignature& tensor = signature.tensors[i];
    const std::size_t n_bytes = is_alltoall ? bytes_of_rows(request.splits[i], tensor) : tensor.n_bytes();
    contribute_all_but(own_rows(request, i, mesh), request.memory[i].input, n_bytes, to);
    to += whole_lines(n_bytes);
  }
}

void contribute_to_meeting(const Call& call, const Mesh& mesh, std::byte* to) {
  contribute_all_but(own_rows(call, mesh), call.memory.input, call.n_bytes(), to);
}

void carry_out_meeting(const Call& call, std::byte* output, const FirstDims* first_dims,
                       std::span<const std::byte*> contributed, const Mesh& mesh) {
  const auto self = static_cast<std::size_t>(mesh.rank());
  const kernels::Reduction reduction{call.dtype, call.op, call.prescale, call.postscale, mesh.size(), {}};
  switch (call.collective) {
    case Collective::kAllreduce: return kernels::reduce(reduction, contributed, output, call.count());
    case Collective::kBroadcast: return copy_unless_there(output, contributed.front(), call.n_bytes());
    case Collective::kAllgather: return gather_rows(output, contributed, first_dims->front(), call.row_bytes(), self);
    case Collective::kReducescatter:
      return reduce_rows(reduction, output, contributed, call.shape.front(), call.row_bytes(), self);
    case Collective::kAlltoall: return exchange_rows(output, contributed, own_rows(call, mesh).n_bytes, self);
    default: return;
  }
}

Status carry_out_meeting(const InFlight::Entry& entry, const FirstDims* first_dims,
                         std::vector<const std::byte*> contributed, const Mesh& mesh, const OutputMemory& memory) {
  MeetingResult result(entry, std::move(contributed), mesh, memory);
  switch (entry.request.signature.collective) {
    case Collective::kAllreduce: return result.allreduce();
    case Collective::kBroadcast: return result.broadcast();
    case Collective::kAllgather: return result.allgather(*first_dims);
    case Collective::kReducescatter: return result.reducescatter();
    case Collective::kAlltoall: return result.alltoall();
    default: return {};
  }
}

}  // namespace ciranda
