// From the arguments of a Python call to the engine's Request. Needs the GIL; throws InvalidArgumentError.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bindings/python/session.hpp"
#include "call/request.hpp"

namespace ciranda::python {

// [tensor][rank]; no entries, or empty ones, for equal parts.
using Splits = std::vector<std::vector<std::int64_t>>;

// From None, or a list of a list of numbers for each tensor.
Splits read_splits(nb::handle splits);

Collective collective_of(int value);

// What a caller gives of its own choice. Throws a TypeError that names the argument which is of another type.
Terms read_terms(int collective, nb::handle op, nb::handle root, nb::handle prescale, nb::handle postscale,
                 bool divides_by_all);
std::optional<std::string> read_name(nb::handle name);
std::optional<double> read_weight(nb::handle weight);
std::int32_t read_priority(nb::handle priority);

// A request without tensors. Without a name it is numbered. `place`: Python's number of a process set and its lane: the
// set's in the lower half, the lane's in the upper. The highest bit means that all ranks of the set are needed.
Request make_request(const Terms& terms, std::optional<std::string>&& name, std::uint64_t place);
// None, or of a collective that does not reduce: there is none.
void set_weight(Request& request, std::optional<double> weight);

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
