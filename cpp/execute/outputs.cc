#include "execute/outputs.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "agree/round_rooms.hpp"
#include "execute/work.hpp"

namespace ciranda {
namespace {

using Buffers = std::vector<OutputBuffer>;

// True if each tensor has a number of rows for each member. If first dimensions may differ, this rank's number must
// also equal the first dimension in its request.
bool are_complete(const FirstDims& rows_from, const Request& request, const Mesh& mesh) {
  const std::vector<TensorSignature>& tensors = request.signature.tensors;
  const bool asks = info(request.signature.collective).first_dim_may_differ;
  return std::ranges::equal(rows_from, tensors, [&](const auto& rows, const TensorSignature& tensor) {
    return rows.size() == static_cast<std::size_t>(mesh.size()) &&
           (!asks || rows[static_cast<std::size_t>(mesh.rank())] == tensor.shape.front());
  });
}

// The request's signature, with the number of rows of this rank's result.
Result<Signature> result_of(const Request& request, const FirstDims* rows_from, const Mesh& mesh) {
  Signature whole = request.signature;
  const bool is_cut = info(whole.collective).rows == Rows::kCut;
  bool can_be = is_cut || (rows_from != nullptr && are_complete(*rows_from, request, mesh));
  for (std::size_t i = 0; can_be && i < whole.tensors.size(); ++i) {
    std::int64_t& n_rows = whole.tensors[i].shape.front();
    const std::optional<std::int64_t> sum =
        is_cut ? n_rows_of_result(whole.collective, n_rows, mesh.rank(), mesh.size()) : sum_of_rows((*rows_from)[i]);
    can_be = sum.has_value();
    n_rows = sum.value_or(0);
  }
  if (can_be && check_sizes(request.name, whole).ok()) return whole;
  return Status::internal("the first dimensions for " + call_text(request) + " are not those of its ranks");
}

// True if the result goes to the caller's memory: the caller has given memory, and the result fits into it.
bool uses_given(const Request& request, const FirstDims* rows_from) {
  const CollectiveInfo& facts = info(request.signature.collective);
  if (facts.output == Output::kMayBeGiven) {
    return std::ranges::any_of(request.memory, [](const TensorMemory& memory) { return memory.output != nullptr; });
  }
  if (facts.output != Output::kMayHaveRoom || !request.has_room_for_all) return false;
  for (std::size_t i = 0; i < request.memory.size(); ++i) {
    const TensorSignature& tensor = request.signature.tensors[i];
    if (request.memory[i].output == nullptr && tensor.n_bytes() != 0) return false;
    const auto is_other = [&](std::int64_t n_rows) { return n_rows != tensor.shape.front(); };
    if (facts.first_dim_may_differ && std::ranges::any_of((*rows_from)[i], is_other)) return false;
  }
  return true;
}

Result<Buffers> allocate(const Request& request, const Signature& whole, const Mesh& mesh, const OutputMemory& from) {
  Buffers buffers;
  for (const TensorSignature& tensor : whole.tensors) {
    buffers.push_back(from.allocate(tensor.n_bytes(), tensor.shape));
    if (buffers.back().data) continue;
    return Status::internal("rank " + std::to_string(mesh.peer(mesh.rank()).rank) +
                            " has no memory for the result of " + call_text(request) + ", " +
                            std::to_string(tensor.n_bytes()) + " bytes");
  }
  return buffers;
}

std::vector<std::size_t> bytes_of(const Signature& whole) {
  std::vector<std::size_t> n_bytes;
  for (const TensorSignature& tensor : whole.tensors) n_bytes.push_back(tensor.n_bytes());
  return n_bytes;
}

// Returns the caller's memory as outputs of the operation, so that the caller need not know whether it was used.
Buffers view_given(const Request& request, const Signature& whole) {
  Buffers buffers;
  for (std::size_t i = 0; i < request.memory.size(); ++i) {
    const std::shared_ptr<std::byte> data(std::shared_ptr<std::byte>(), request.memory[i].output);
    buffers.push_back({data, whole.tensors[i].n_bytes(), whole.tensors[i].shape, request.memory[i].place});
  }
  return buffers;
}

void add_received_splits(const FirstDims& rows_from, Buffers& to) {
  for (const std::vector<std::int64_t>& rows : rows_from) {
    const std::size_t n_bytes = rows.size() * sizeof(std::int64_t);
    to.push_back(allocate_output(n_bytes, {static_cast<std::int64_t>(rows.size())}));
    if (to.back().data) std::memcpy(to.back().data.get(), rows.data(), n_bytes);
  }
}

// Gives the operation what was allocated for it.
std::vector<std::byte*> give(Buffers buffers, const Submission& entry, const FirstDims* rows_from) {
  std::vector<std::byte*> to;
  for (const OutputBuffer& buffer : buffers) to.push_back(buffer.data.get());
  const Signature& signature = entry.request->signature;
  if (has_own_splits(signature) && !info(signature.collective).is_from_root) add_received_splits(*rows_from, buffers);
  entry.operation->set_outputs(std::move(buffers));
  return to;
}

bool gets_result(const Signature& signature, const Mesh& mesh) {
  const CollectiveInfo& facts = info(signature.collective);
  return facts.receives(facts.has_root && root_member(signature, mesh) == mesh.rank());
}

// Memory on the device that Staged::allocate_outputs() has got for such a result.
Result<std::vector<std::byte*>> give_allocated(const Submission& entry, const Signature& whole,
                                               const FirstDims* rows_from) {
  Result<Buffers> buffers = entry.staged->allocated_outputs(bytes_of(whole));
  if (!buffers.ok()) return buffers.status();
  for (std::size_t i = 0; i < whole.tensors.size(); ++i) buffers.value()[i].shape = whole.tensors[i].shape;
  return give(std::move(buffers).value(), entry, rows_from);
}

std::vector<std::byte*> given_memory(const Request& request) {
  std::vector<std::byte*> memory;
  for (const TensorMemory& given : request.memory) memory.push_back(given.output);
  return memory;
}

}  // namespace

std::optional<std::int64_t> sum_of_rows(const std::vector<std::int64_t>& rows) {
  constexpr std::int64_t kMaxRows = std::int64_t{1} << 56;
  std::int64_t sum = 0;
  for (const std::int64_t each : rows) {
    if (each < 0 || each > kMaxRows - sum) return std::nullopt;
    sum += each;
  }
  return sum;
}

Result<std::vector<std::byte*>> give_outputs(const Submission& entry, const FirstDims* rows_from, const Mesh& mesh,
                                             const OutputMemory& memory) {
  const Request& request = *entry.request;
  const CollectiveInfo& facts = info(request.signature.collective);
  if (!facts.allocates_output) return given_memory(request);
  const Result<Signature> whole = result_of(request, rows_from, mesh);
  if (!whole.ok()) return whole.status();
  if (!gets_result(request.signature, mesh)) return std::vector<std::byte*>{};
  if (uses_given(request, rows_from)) {
    if (facts.output == Output::kMayHaveRoom) entry.operation->set_outputs(view_given(request, whole.value()));
    return given_memory(request);
  }
  Result<Buffers> buffers = allocate(request, whole.value(), mesh, memory);
  if (!buffers.ok()) return buffers.status();
  return give(std::move(buffers).value(), entry, rows_from);
}

Result<Work> work_with_outputs(Ticket ticket, InFlight& in_flight, const FirstDims* rows_from, const Mesh& mesh,
                               const MakeWithOutputs& make) {
  const Submission& entry = in_flight.at(ticket);
  const Request& request = *entry.request;
  const auto make_at_once = [&]() -> Result<Work> {
    const auto outputs = give_outputs(entry, rows_from, mesh, in_flight.output_memory());
    return outputs.ok() ? make(outputs.value()) : outputs.status();
  };
  const bool is_on_device = entry.staged != nullptr && entry.staged->is_by_peer();
  const bool allocates = info(request.signature.collective).allocates_output && gets_result(request.signature, mesh);
  if (!is_on_device || !allocates) return make_at_once();
  const Result<Signature> whole = result_of(request, rows_from, mesh);
  if (!whole.ok()) return whole.status();
  if (uses_given(request, rows_from)) return make_at_once();
  Staged& staged = *entry.staged;
  staged.allocate_outputs(bytes_of(whole.value()));
  return Work{.plans = {},
              .continue_with =
                  [ticket, &in_flight, whole = whole.value(), rows_from, make] {
                    Submission& allocated = in_flight.at(ticket);
                    const auto outputs = give_allocated(allocated, whole, rows_from);
                    if (!outputs.ok()) {
                      const std::string call = call_text(*allocated.request);
                      allocated.outcome = Status::internal(call + ": " + outputs.status().message());
                    }
                    return make(outputs.ok() ? outputs.value() : std::vector<std::byte*>{});
                  },
              .may_continue = [&staged]() REQUIRES(progress_lock) -> Result<bool> {
                if (!staged.is_here()) return false;
                const Status status = staged.status();
                return status.ok() ? Result<bool>(true) : status;
              }};
}

}  // namespace ciranda
