#include "bindings/jax/collective_call.hpp"

#include <ciranda/native/context.hpp>
#include <ciranda/native/tables.hpp>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "bindings/jax/names.hpp"

namespace ciranda::jax {

namespace {

constexpr native::DtypeTable<ffi::Dtype> kDtypes({{CIRANDA_BOOL, ffi::kPred},
                                                  {CIRANDA_UINT8, ffi::kU8},
                                                  {CIRANDA_UINT16, ffi::kU16},
                                                  {CIRANDA_UINT32, ffi::kU32},
                                                  {CIRANDA_UINT64, ffi::kU64},
                                                  {CIRANDA_INT8, ffi::kS8},
                                                  {CIRANDA_INT16, ffi::kS16},
                                                  {CIRANDA_INT32, ffi::kS32},
                                                  {CIRANDA_INT64, ffi::kS64},
                                                  {CIRANDA_FLOAT16, ffi::kF16},
                                                  {CIRANDA_BFLOAT16, ffi::kBf16},
                                                  {CIRANDA_FLOAT32, ffi::kF32},
                                                  {CIRANDA_FLOAT64, ffi::kF64},
                                                  {CIRANDA_COMPLEX64, ffi::kC64},
                                                  {CIRANDA_COMPLEX128, ffi::kC128}});

constexpr native::StatusTable<ffi::Code> kCodes({{CIRANDA_OK, std::nullopt},
                                                 {CIRANDA_INVALID_ARGUMENT, ffi::kInvalidArgument},
                                                 {CIRANDA_MISMATCH, ffi::kFailedPrecondition},
                                                 {CIRANDA_RANKS_LOST, ffi::kUnavailable},
                                                 {CIRANDA_TIMEOUT, ffi::kDeadlineExceeded},
                                                 {CIRANDA_ABORTED, ffi::kAborted},
                                                 {CIRANDA_INTERNAL, ffi::kInternal}});

std::int64_t rows_of(const ffi::Buffer& buffer) { return buffer.ndim == 0 ? 0 : buffer.shape[0]; }

}  // namespace

ffi::Code code_of(ciranda_status status) { return kCodes.theirs(status).value_or(ffi::kInternal); }

std::optional<std::size_t> n_bytes_of(const ffi::Buffer& buffer) {
  const std::optional<ciranda_dtype> dtype = kDtypes.ours(static_cast<ffi::Dtype>(buffer.dtype));
  if (!dtype) return std::nullopt;
  const std::int64_t n =
      std::accumulate(buffer.shape, buffer.shape + buffer.ndim, std::int64_t{1}, std::multiplies<>());
  return static_cast<std::size_t>(n) * ciranda_dtype_size(*dtype);
}

std::string size_problem(const Parameters& parameters, const ciranda_context* world) {
  const std::size_t n =
      ciranda_process_set_ranks(world, static_cast<std::uint32_t>(parameters.process_set), nullptr, 0);
  if (parameters.n_ranks == 0 || n == 0 || n == static_cast<std::size_t>(parameters.n_ranks)) return "";
  return std::string(kBinding) + ": '" + parameters.name + "': the program was traced when process set " +
         std::to_string(parameters.process_set) + " had " + std::to_string(parameters.n_ranks) + " ranks, and it has " +
         std::to_string(n) +
         " now, on which the shape of the result depends: call jax.clear_caches() after the world " +
         "has changed its size, so that the function is traced again";
}

std::string name_problem(const ffi::Frame& frame, const Parameters& parameters) {
  static Names names;
  ffi::GetRunId request{sizeof(ffi::GetRunId), nullptr, frame.context, 0};
  if (frame.api->get_run_id(&request) != nullptr) return "";
  // Each call of a program has attributes of its own, so their address identifies the call.
  const std::string& name = parameters.name;
  if (names.note(name, {parameters.program, request.run_id}, frame.attributes.items[0])) return "";
  return std::string(kBinding) + ": '" + name +
         "' is the name of two calls in one program, and ranks could match one " +
         "with the other: JAX has compiled one function for two of its uses. Give each use a function of its own";
}

// This rank's position in a process set, and the size of the set; 0 if this rank is not in it.
class CollectiveCall::Membership {
 public:
  Membership(const ciranda_context* world, std::uint32_t process_set) {
    std::vector<std::int32_t> ranks(ciranda_process_set_ranks(world, process_set, nullptr, 0));
    (void)ciranda_process_set_ranks(world, process_set, ranks.data(), ranks.size());
    for (const std::int32_t rank : ranks) {
      if (rank == ciranda_rank(world)) n_ranks_ = static_cast<std::int64_t>(ranks.size());
      if (n_ranks_ == 0) ++position_;
    }
  }

  // This rank's rows of a reducescatter; -1 if it is not in the set.
  std::int64_t share_of(std::int64_t rows) const {
    return n_ranks_ == 0 ? -1 : rows / n_ranks_ + (position_ < rows % n_ranks_ ? 1 : 0);
  }
  std::int64_t n_ranks() const { return n_ranks_; }

 private:
  std::int64_t position_ = 0;
  std::int64_t n_ranks_ = 0;
};

std::string CollectiveCall::take(const ffi::Frame& frame, const ciranda_context* world) {
  const Membership member(world, static_cast<std::uint32_t>(parameters_.process_set));
  if (std::string problem = size_problem(parameters_, world); !problem.empty()) return problem;
  is_root_ = ciranda_rank(world) == parameters_.root;
  const auto n = static_cast<std::size_t>(frame.results.size);  // a further argument is not used
  tensors_.resize(n);
  results_.resize(n);
  bool fits = true;
  for (std::size_t i = 0; i < n; ++i) {
    const ffi::Buffer& input = *frame.arguments.items[i];
    const ffi::Buffer& output = *frame.results.items[i];
    const std::optional<std::int32_t> dtype = kDtypes.ours(static_cast<ffi::Dtype>(input.dtype));
    if (!dtype) return "arrays of XLA's element type " + std::to_string(input.dtype) + " cannot be communicated";
    results_[i] = {output.data, n_bytes_of(output).value_or(0)};
    tensors_[i] = {input.data, output.data, input.shape, static_cast<std::int32_t>(input.ndim), *dtype, nullptr, 0,
                   0,          0,           nullptr};
    memory_.describe(tensors_[i]);
    fits = fits && has_size(input, output, member);
  }
  if (!fits || room() == Room::kNever) {
    for (ciranda_tensor& tensor : tensors_) tensor.output = nullptr;
  }
  has_room_ = fits;
  return "";
}

ciranda_request CollectiveCall::request() const {
  ciranda_request request = CIRANDA_REQUEST_INIT;
  request.collective = parameters_.collective;
  request.op = parameters_.op;
  request.root = parameters_.root;
  request.process_set = static_cast<std::uint32_t>(parameters_.process_set);
  request.lane = static_cast<std::uint32_t>(parameters_.lane);
  request.prescale = parameters_.prescale;
  request.postscale = parameters_.postscale;
  request.flags = static_cast<std::uint32_t>(parameters_.flags);
  if (parameters_.collective == CIRANDA_ALLGATHER && has_room_) request.flags |= CIRANDA_REQUEST_HAS_ROOM;
  request.name = parameters_.name.empty() ? nullptr : parameters_.name.c_str();
  request.tensors = tensors_.data();
  request.tensors_count = tensors_.size();
  request.binding = kBinding;
  return request;
}

std::size_t CollectiveCall::n_bytes() const {
  return std::accumulate(results_.begin(), results_.end(), std::size_t{0},
                         [](std::size_t sum, const Result& result) { return sum + result.n_bytes; });
}

CollectiveCall::Room CollectiveCall::room() const {
  switch (parameters_.collective) {
    case CIRANDA_ALLGATHER:
    case CIRANDA_REDUCESCATTER: return Room::kIfItFits;
    case CIRANDA_ALLTOALL:  // needs memory from all ranks, also those that do not use JAX
      return Room::kNever;
    default: return Room::kAlways;
  }
}

bool CollectiveCall::has_size(const ffi::Buffer& input, const ffi::Buffer& output, const Membership& member) const {
  if (room() != Room::kIfItFits) return true;
  const std::int64_t rows = rows_of(input);
  const std::int64_t expected =
      parameters_.collective == CIRANDA_ALLGATHER ? rows * member.n_ranks() : member.share_of(rows);
  return rows_of(output) == expected;
}

std::string CollectiveCall::finish(const ciranda_operation* operation) const {
  if (std::string problem = memory_.order(operation); !problem.empty()) return problem;
  if (parameters_.collective == CIRANDA_REDUCE && !is_root_) {
    for (const Result& result : results_) {
      if (std::string problem = memory_.fill(result.data, 0, result.n_bytes); !problem.empty()) return problem;
    }
  }
  if (ciranda_operation_outputs_count(operation) < results_.size()) return "";
  for (std::size_t i = 0; i < results_.size(); ++i) {
    ciranda_output found{};
    (void)ciranda_operation_output(operation, i, &found);
    if (found.data == results_[i].data) continue;
    // The engine uses the given memory if all ranks contribute the same number of rows.
    const bool is_uneven = parameters_.collective == CIRANDA_ALLGATHER && has_room_ && found.n_bytes != 0;
    if (is_uneven || found.n_bytes != results_[i].n_bytes) return rows_problem(found, tensors_[i]);
    if (std::string problem = memory_.copy(results_[i].data, found.data, found.n_bytes); !problem.empty())
      return problem;
  }
  return "";
}

std::string CollectiveCall::rows_problem(const ciranda_output& found, const ciranda_tensor& tensor) const {
  return std::string(kBinding) + ": '" + parameters_.name + "': the ranks bring " +
         std::to_string(found.ndim == 0 ? 0 : found.shape[0]) + " rows in all, of which this rank brings " +
         std::to_string(tensor.ndim == 0 ? 0 : tensor.shape[0]) +
         ": inside jit, where shapes are fixed, all ranks must bring the same number; call it outside jit";
}

}  // namespace ciranda::jax
