#include "engine/meeting_data.hpp"

#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "base/copy_bytes.hpp"
#include "engine/outputs.hpp"
#include "kernels/kernels.hpp"
#include "negotiate/meeting_places.hpp"

namespace ciranda {
namespace {

std::int64_t sum(std::span<const std::int64_t> rows) {
  return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}

class MeetingResult {
 public:
  MeetingResult(const InFlight::Entry& entry, std::vector<const std::byte*> brought, const Mesh& mesh,
                const OutputMemory& memory)
      : request_(entry.request),
        operation_(*entry.operation),
        from_(std::move(brought)),
        mesh_(mesh),
        memory_(memory),
        n_ranks_(static_cast<std::size_t>(mesh.size())),
        self_(static_cast<std::size_t>(mesh.rank())) {}

  Status allreduce() {
    for (std::size_t i = 0; i < tensors().size(); ++i) {
      kernels::reduce(reduction(i), from_, request_.memory[i].output, count_of(tensors()[i].shape));
      skip(whole_lines(tensors()[i].n_bytes()));
    }
    return {};
  }

  Status broadcast() {
    for (std::size_t i = 0; i < tensors().size(); ++i) {
      std::byte* output = request_.memory[i].output;
      if (output != nullptr) copy_bytes(output, from_.front(), tensors()[i].n_bytes());
      skip(whole_lines(tensors()[i].n_bytes()));
    }
    return {};
  }

  Status allgather(const FirstDims& first_dims) {
    Result<Outputs> outputs = outputs_of_gather(request_, first_dims, mesh_, memory_);
    if (!outputs.ok()) return outputs.status();
    for (std::size_t i = 0; i < tensors().size(); ++i) {
      const std::size_t row_bytes = tensors()[i].row_bytes();
      std::byte* to = outputs.value().memory[i];
      for (std::size_t rank = 0; rank < n_ranks_; ++rank) {
        const std::size_t n_bytes = static_cast<std::size_t>(first_dims[i][rank]) * row_bytes;
        copy_bytes(to, from_[rank], n_bytes);
        to += n_bytes;
        from_[rank] += whole_lines(n_bytes);
      }
    }
    operation_.set_outputs(std::move(outputs).value().buffers);
    return {};
  }

  Status reducescatter() {
    Result<Outputs> outputs = outputs_of_reducescatter(request_, mesh_, memory_);
    if (!outputs.ok()) return outputs.status();
    std::vector<const std::byte*> parts(n_ranks_);
    for (std::size_t i = 0; i < tensors().size(); ++i) {
      const TensorSignature& tensor = tensors()[i];
      const std::vector<std::int64_t> rows = even_splits(tensor.shape.front(), mesh_.size());
      const auto n_before = static_cast<std::size_t>(sum(std::span(rows).first(self_)));
      const std::size_t n_bytes = static_cast<std::size_t>(rows[self_]) * tensor.row_bytes();
      for (std::size_t rank = 0; rank < n_ranks_; ++rank) parts[rank] = from_[rank] + n_before * tensor.row_bytes();
      if (n_bytes > 0) kernels::reduce(reduction(i), parts, outputs.value().memory[i], n_bytes / size_of(tensor.dtype));
      skip(whole_lines(tensor.n_bytes()));
    }
    operation_.set_outputs(std::move(outputs).value().buffers);
    return {};
  }

  Status alltoall() {
    const std::vector<FirstDims> splits = read_splits();
    FirstDims rows_from(tensors().size());
    for (std::size_t i = 0; i < rows_from.size(); ++i) {
      for (const FirstDims& of_rank : splits) rows_from[i].push_back(of_rank[i][self_]);
    }
    Result<Outputs> outputs = outputs_of_alltoall(rows_from);
    if (!outputs.ok()) return outputs.status();
    for (std::size_t i = 0; i < tensors().size(); ++i) {
      const std::size_t row_bytes = tensors()[i].row_bytes();
      std::byte* to = outputs.value().memory[i];
      for (std::size_t rank = 0; rank < n_ranks_; ++rank) {
        const std::vector<std::int64_t>& rows = splits[rank][i];
        const std::size_t n_bytes = static_cast<std::size_t>(rows[self_]) * row_bytes;
        const auto n_before = static_cast<std::size_t>(sum(std::span(rows).first(self_)));
        copy_bytes(to, from_[rank] + n_before * row_bytes, n_bytes);
        to += n_bytes;
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

  Result<Outputs> outputs_of_alltoall(const FirstDims& rows_from) const {
    if (keeps_rows(request_)) return outputs_of_even_exchange(request_);
    Outputs outputs;
    std::vector<std::int64_t> n_rows;
    for (const std::vector<std::int64_t>& rows : rows_from) {
      const auto n = sum_of_rows(rows);
      if (!n) return Status::invalid_argument("alltoall '" + request_.name + "': a tensor cannot have so many rows.");
      n_rows.push_back(*n);
    }
    if (Status status = outputs.allocate(memory_, request_, n_rows, mesh_); !status.ok()) return status;
    outputs.add_received_splits(rows_from);
    return outputs;
  }

  const Request& request_;
  Operation& operation_;
  std::vector<const std::byte*> from_;  // where each member's next tensor lies
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

}  // namespace

void bring_to_meeting(const Request& request, std::byte* to) {
  const Signature& signature = request.signature;
  const bool is_alltoall = signature.collective == Collective::kAlltoall;
  if (is_alltoall) to = write_splits(request, to);
  for (std::size_t i = 0; i < request.memory.size(); ++i) {
    const TensorSignature& tensor = signature.tensors[i];
    const std::size_t n_bytes = is_alltoall ? bytes_of_rows(request.splits[i], tensor) : tensor.n_bytes();
    copy_bytes(to, request.memory[i].input, n_bytes);
    to += whole_lines(n_bytes);
  }
}

void bring_to_meeting(const Call& call, std::byte* to) { copy_bytes(to, call.memory.input, call.n_bytes()); }

void carry_out_meeting(const Call& call, std::span<const std::byte* const> brought, int n_ranks) {
  if (call.collective == Collective::kBroadcast) {
    if (brought.front() != call.memory.output) copy_bytes(call.memory.output, brought.front(), call.n_bytes());
  } else {
    const kernels::Reduction reduction{call.dtype, call.op, call.prescale, call.postscale, n_ranks, {}};
    kernels::reduce(reduction, brought, call.memory.output, call.count());
  }
}

Status carry_out_meeting(const InFlight::Entry& entry, const FirstDims* first_dims,
                         std::vector<const std::byte*> brought, const Mesh& mesh, const OutputMemory& memory) {
  MeetingResult result(entry, std::move(brought), mesh, memory);
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
