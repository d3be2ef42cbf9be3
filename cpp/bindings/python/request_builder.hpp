// From the arguments of a Python call to the engine's Request. Needs the GIL; throws InvalidArgumentError.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/python/session.hpp"
#include "call/request.hpp"

namespace ciranda::python {

// [tensor][rank]; no entries, or empty ones, for equal parts.
using Splits = std::vector<std::vector<std::int64_t>>;

// The parameters of a call, except the tensors.
struct CallOptions {
  int collective = 0;
  std::optional<std::string> name;  // without one the request gets an automatic name
  int op = static_cast<int>(ReduceOp::kSum);
  int root = -1;
  double prescale = 1.0;
  double postscale = 1.0;
  bool is_deferrable = false;
  bool is_awaited = false;
  Splits splits = {};
  std::uint32_t process_set = 0;
  std::uint32_t lane = 0;
  std::vector<std::int64_t> arguments = {};
  std::optional<double> weight = {};
  bool divides_by_all = false;
  bool needs_all = false;
  std::int32_t priority = 0;
  bool is_numbered = false;  // calls of this name may be pending together, matched in order

  Terms terms(ReduceOp reduce_op) const { return {reduce_op, root, prescale, postscale, divides_by_all}; }

  // Python's number of a process set and its lane: the set in the lower half, the lane in the upper. The highest bit
  // means that the call needs all ranks of the set.
  void set_place(std::uint64_t place) {
    constexpr std::uint32_t kNeedsAll = 1U << 31U;
    process_set = static_cast<std::uint32_t>(place);
    const auto upper = static_cast<std::uint32_t>(place >> 32U);
    lane = upper & ~kNeedsAll;
    needs_all = (upper & kNeedsAll) != 0;
  }
};

// From None, or a list of a list of numbers for each tensor.
Splits read_splits(nb::handle splits);

// The value of this number, by collective_from_wire() or the like; nullopt if it is not a byte.
template <typename Enum>
std::optional<Enum> from_number(int number, std::optional<Enum> (*from_wire)(std::uint8_t)) {
  return std::in_range<std::uint8_t>(number) ? from_wire(static_cast<std::uint8_t>(number)) : std::nullopt;
}

// A request without tensors, and without a name if the options have none.
Request make_request(const CallOptions& options);

// Whether it is a list or a tuple of tensors.
bool is_group(nb::handle inputs);

// This rank's share of the rows of a tensor: all, unless several ranks share them.
struct Share {
  int n_ranks = 1;
  int index = 0;
};

// The signature of the result for a tensor: it differs from the tensor's if ranks share its rows (reducescatter), or
// each contributes the same number (allgather).
TensorSignature result_of(TensorSignature tensor, Collective collective, Share share);

// The objects that must be kept for an operation, and the exchange table of the last input.
struct AttachedTensors {
  Session::Tensors kept;
  const dlpack::ExchangeTable* table = nullptr;
};

// Adds the tensors. `inputs` is a tensor, or a list or tuple of them; `outputs` the same, `inputs` itself for in place,
// or None where the engine allocates. Lists are copied, as their owner may change them. `share`: the outputs' share of
// the inputs' rows; of an allgather, the inputs' share of the outputs' rows.
AttachedTensors attach_tensors(Request& request, nb::handle inputs, nb::handle outputs, TensorReader& reader,
                               Share share = {});

}  // namespace ciranda::python
