#include "fuse/plan.hpp"

#include <algorithm>
#include <utility>

#include "base/round_up.hpp"

namespace ciranda {
namespace {

constexpr std::size_t kChunkAlignment = 64;    // no element is cut
constexpr std::size_t kMostPartsOfChunk = 16;  // of more ranks the parts would be too small

// The part of a list, which may be shorter than the work, that lies in the range.
template <typename Byte>
PieceList<Byte> clipped(const PieceList<Byte>& list, std::size_t offset, std::size_t n_bytes) {
  const std::size_t begin = std::min(offset, list.n_bytes());
  return list.part(begin, std::min(n_bytes, list.n_bytes() - begin));
}

template <typename Byte>
std::vector<PieceList<Byte>> clipped(const std::vector<PieceList<Byte>>& lists, std::size_t offset,
                                     std::size_t n_bytes) {
  std::vector<PieceList<Byte>> parts;
  for (const PieceList<Byte>& list : lists) parts.push_back(clipped(list, offset, n_bytes));
  return parts;
}

// A plan over the tensors of a request, which are in one type of memory.
Plan plan_over(const Request& request) {
  Plan plan;
  plan.collective = request.signature.collective;
  if (!request.memory.empty()) plan.place = request.memory.front().place;
  return plan;
}

// Returns the plan for this dtype; appends a new one to `plans` if there is none.
Plan& plan_for(DataType dtype, const Request& request, std::vector<Plan>& plans) {
  const auto found = std::find_if(plans.begin(), plans.end(), [&](const Plan& plan) { return plan.dtype == dtype; });
  if (found != plans.end()) return *found;
  Plan& plan = plans.emplace_back(plan_over(request));
  plan.dtype = dtype;
  plan.op = request.signature.op;
  plan.prescale = request.signature.prescale;
  plan.postscale = request.signature.postscale;
  return plan;
}

std::size_t longest(const std::vector<std::size_t>& sizes) {
  return sizes.empty() ? 0 : *std::max_element(sizes.begin(), sizes.end());
}

void count_by_rank(const std::vector<std::int64_t>& rows, std::size_t row_bytes, std::vector<std::size_t>& to) {
  to.resize(rows.size());
  for (std::size_t rank = 0; rank < rows.size(); ++rank) to[rank] += static_cast<std::size_t>(rows[rank]) * row_bytes;
}

// Appends each rank's consecutive part of the memory to that rank's pieces.
template <typename Byte>
void add_by_rank(Byte* memory, const std::vector<std::int64_t>& rows, std::size_t row_bytes,
                 std::vector<PieceList<Byte>>& to) {
  to.resize(rows.size());
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    const std::size_t n_bytes = static_cast<std::size_t>(rows[rank]) * row_bytes;
    to[rank].add(memory, n_bytes);
    memory += n_bytes;
  }
}

}  // namespace

bool Plan::has_one_range() const {
  return collective == Collective::kAllreduce || collective == Collective::kReduce ||
         collective == Collective::kBroadcast;
}

// REQUIRES: offset < n_bytes.
Plan Plan::part(std::size_t offset, std::size_t most_bytes) const {
  Plan part;
  static_cast<Reduction&>(part) = *this;
  part.place = place;
  part.collective = collective;
  part.contributors = contributors;
  part.receivers = receivers;
  part.root = root;
  part.after = after;
  part.holds = holds;
  part.n_bytes = std::min(most_bytes, n_bytes - offset);
  part.input = clipped(input, offset, part.n_bytes);
  part.output = clipped(output, offset, part.n_bytes);
  part.input_by_rank = clipped(input_by_rank, offset, part.n_bytes);
  part.output_by_rank = clipped(output_by_rank, offset, part.n_bytes);
  for (const std::size_t from : n_bytes_from) {
    part.n_bytes_from.push_back(std::min(from - std::min(offset, from), part.n_bytes));
  }
  return part;
}

std::vector<Plan> Plan::in_chunks(std::size_t most_bytes, int n_ranks) && {
  const std::size_t n_ranges = has_one_range() ? 1 : std::min(static_cast<std::size_t>(n_ranks), kMostPartsOfChunk);
  const std::size_t part_bytes = round_up(most_bytes / n_ranges, kChunkAlignment);
  std::vector<Plan> chunks;
  if (part_bytes == 0 || n_bytes <= part_bytes) {
    chunks.push_back(std::move(*this));
    return chunks;
  }
  for (std::size_t offset = 0; offset < n_bytes; offset += part_bytes) chunks.push_back(part(offset, part_bytes));
  return chunks;
}

std::vector<Plan> plan_reduction(std::span<const Request* const> requests) {
  std::vector<Plan> plans;
  for (const Request* request : requests) {
    for (std::size_t i = 0; i < request->signature.tensors.size(); ++i) {
      const TensorSignature& tensor = request->signature.tensors[i];
      Plan& plan = plan_for(tensor.dtype, *request, plans);
      plan.n_bytes += tensor.n_bytes();
      plan.input.add(request->memory[i].input, tensor.n_bytes());
      plan.output.add(request->memory[i].output, tensor.n_bytes());
    }
  }
  return plans;
}

std::vector<Plan> plan_reducescatter(const Request& request, int n_ranks, int rank,
                                     std::span<std::byte* const> outputs) {
  std::vector<Plan> plans;
  for (std::size_t i = 0; i < request.signature.tensors.size(); ++i) {
    const TensorSignature& tensor = request.signature.tensors[i];
    const std::vector<std::int64_t> rows = even_splits(tensor.shape.front(), n_ranks);
    Plan& plan = plan_for(tensor.dtype, request, plans);
    add_by_rank(request.memory[i].input, rows, tensor.row_bytes(), plan.input_by_rank);
    const auto n_rows = static_cast<std::size_t>(rows[static_cast<std::size_t>(rank)]);
    if (!outputs.empty()) plan.output.add(outputs[i], n_rows * tensor.row_bytes());
  }
  for (Plan& plan : plans) {
    plan.n_bytes = plan.input_by_rank.front().n_bytes();  // the first rank has the most rows
    plan.n_average = n_ranks;
  }
  return plans;
}

Plan plan_broadcast(const Request& request) {
  Plan plan = plan_over(request);
  plan.collective = Collective::kBroadcast;  // of a transfer, too
  plan.root = request.signature.root;
  plan.n_bytes = request.signature.n_bytes();
  for (std::size_t i = 0; i < request.signature.tensors.size(); ++i) {
    const std::size_t n_bytes = request.signature.tensors[i].n_bytes();
    plan.input.add(request.memory[i].input, n_bytes);
    plan.output.add(request.memory[i].output, n_bytes);
  }
  return plan;
}

Plan plan_gather(const Request& request, const FirstDims& first_dims, std::span<std::byte* const> outputs) {
  Plan plan = plan_over(request);
  for (std::size_t i = 0; i < request.signature.tensors.size(); ++i) {
    const TensorSignature& tensor = request.signature.tensors[i];
    plan.input.add(request.memory[i].input, tensor.n_bytes());
    count_by_rank(first_dims[i], tensor.row_bytes(), plan.n_bytes_from);
    plan.output_by_rank.resize(first_dims[i].size());
    if (!outputs.empty()) add_by_rank(outputs[i], first_dims[i], tensor.row_bytes(), plan.output_by_rank);
  }
  plan.n_bytes = longest(plan.n_bytes_from);
  return plan;
}

Plan plan_exchange(const Request& request, const FirstDims& rows_to, const FirstDims& rows_from,
                   std::span<std::byte* const> outputs, std::size_t longest_bytes) {
  Plan plan = plan_over(request);
  plan.n_bytes = longest_bytes;
  for (std::size_t i = 0; i < request.signature.tensors.size(); ++i) {
    const std::size_t row_bytes = request.signature.tensors[i].row_bytes();
    add_by_rank(request.memory[i].input, rows_to[i], row_bytes, plan.input_by_rank);
    count_by_rank(rows_from[i], row_bytes, plan.n_bytes_from);
    plan.output_by_rank.resize(rows_from[i].size());
    if (!outputs.empty()) add_by_rank(outputs[i], rows_from[i], row_bytes, plan.output_by_rank);
  }
  return plan;
}

}  // namespace ciranda
