#include "bindings/python/request_builder.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "bindings/python/errors.hpp"

namespace ciranda::python {

namespace {

// The enumerator with this number, by collective_from_wire() or a similar function. None if the number is not a byte.
template <typename Enum>
std::optional<Enum> from_number(int number, std::optional<Enum> (*from_wire)(std::uint8_t)) {
  return std::in_range<std::uint8_t>(number) ? from_wire(static_cast<std::uint8_t>(number)) : std::nullopt;
}

ReduceOp reduce_op_of(int value) {
  const auto op = from_number(value, reduce_op_from_wire);
  if (!op) {
    raise_invalid_argument("there is no reduction with number " + std::to_string(value) +
                           "; use Average, Sum, Min, Max or Product");
  }
  return *op;
}

// Names the wrong argument; nanobind's own error lists the whole signature instead.
template <typename Value>
Value read(nb::handle given, const char* name, const char* expected) {
  Value value;
  if (nb::try_cast(given, value)) return value;
  const nb::object shown = nb::steal(PyObject_ASCII(given.ptr()));
  if (!shown.is_valid()) throw nb::python_error();
  throw nb::type_error((std::string(name) + " must be " + expected + ", not " + nb::cast<std::string>(shown)).c_str());
}

nb::tuple as_tuple(nb::handle sequence) {
  PyObject* tuple = PySequence_Tuple(sequence.ptr());
  if (tuple == nullptr) throw nb::python_error();
  return nb::steal<nb::tuple>(tuple);
}

// Returns the input's exchange table.
const dlpack::ExchangeTable* attach_one(Request& request, std::size_t index, nb::handle input, nb::handle output,
                                        TensorReader& reader, Share share) {
  TensorSignature& signature = request.signature.tensors[index];
  TensorMemory& memory = request.memory[index];
  if (output.is_none()) {
    const TensorView view = reader.read(input, Access::kRead, signature);
    memory.input = view.address;
    return view.table;
  }
  if (output.is(input) && share.n_ranks == 1) {
    const TensorView view = reader.read(input, Access::kWrite, signature);
    memory = {view.address, view.address};
    return view.table;
  }
  TensorSignature output_signature;
  memory.output = reader.read(output, Access::kWrite, output_signature).address;
  const TensorView view = reader.read(input, Access::kRead, signature);
  memory.input = view.address;
  const TensorSignature result = result_of(signature, request.signature.collective, share);
  if (!(output_signature == result)) {
    raise_invalid_argument("the output is " + std::string(to_string(output_signature.dtype)) +
                           to_string(output_signature.shape) + " but the " + (share.n_ranks > 1 ? "result" : "input") +
                           " is " + std::string(to_string(result.dtype)) + to_string(result.shape));
  }
  return view.table;
}

void resize(Request& request, std::size_t n_tensors) {
  request.signature.tensors.resize(n_tensors);
  request.memory.assign(n_tensors, TensorMemory{});
}

}  // namespace

TensorSignature result_of(TensorSignature tensor, Collective collective, Share share) {
  if (share.n_ranks == 1 || tensor.shape.empty()) return tensor;
  std::int64_t& rows = tensor.shape.front();
  rows = n_rows_of_result(collective, rows, share.index, share.n_ranks);
  return tensor;
}

bool is_group(nb::handle inputs) { return PyList_Check(inputs.ptr()) != 0 || PyTuple_Check(inputs.ptr()) != 0; }

Splits read_splits(nb::handle splits) { return splits.is_none() ? Splits{} : nb::cast<Splits>(splits); }

Collective collective_of(int value) {
  const auto collective = from_number(value, collective_from_wire);
  if (!collective) raise_invalid_argument("there is no collective number " + std::to_string(value));
  return *collective;
}

Terms read_terms(int collective, nb::handle op, nb::handle root, nb::handle prescale, nb::handle postscale,
                 bool divides_by_all) {
  return {collective_of(collective),
          reduce_op_of(read<int>(op, "op", "Average, Sum, Min, Max or Product")),
          read<int>(root, "root_rank", "a whole number"),
          read<double>(prescale, "prescale_factor", "a number"),
          read<double>(postscale, "postscale_factor", "a number"),
          divides_by_all};
}

std::optional<std::string> read_name(nb::handle name) {
  return read<std::optional<std::string>>(name, "name", "text, which can be written as UTF-8, or None");
}

std::optional<double> read_weight(nb::handle weight) {
  return read<std::optional<double>>(weight, "weight", "a number or None");
}

std::int32_t read_priority(nb::handle priority) { return read<std::int32_t>(priority, "priority", "a whole number"); }

Request make_request(const Terms& terms, std::optional<std::string>&& name, std::uint64_t place) {
  constexpr std::uint32_t kNeedsAll = 1U << 31U;
  const auto upper = static_cast<std::uint32_t>(place >> 32U);
  Request request;
  request.is_cacheable = name.has_value();
  if (name) request.name = std::move(*name);
  request.process_set = static_cast<std::uint32_t>(place);
  request.lane = upper & ~kNeedsAll;
  static_cast<Terms&>(request.signature) = used(terms);
  request.signature.needs_all = (upper & kNeedsAll) != 0;
  return request;
}

void set_weight(Request& request, std::optional<double> weight) {
  if (!weight || !info(request.signature.collective).is_reduction) return;
  request.signature.is_weighted = true;
  request.weight = *weight;
}

AttachedTensors attach_tensors(Request& request, nb::handle inputs, nb::handle outputs, TensorReader& reader,
                               Share share) {
  request.has_room_for_all = !outputs.is_none() && info(request.signature.collective).output == Output::kMayHaveRoom;
  if (!is_group(inputs)) {
    resize(request, 1);
    const dlpack::ExchangeTable* table = attach_one(request, 0, inputs, outputs, reader, share);
    return {{nb::borrow(inputs), outputs.is(inputs) ? nb::object() : nb::borrow(outputs)}, table};
  }
  const nb::tuple input_tuple = as_tuple(inputs);
  const nb::object output_tuple = outputs.is_none()    ? nb::none()
                                  : outputs.is(inputs) ? nb::object(input_tuple)
                                                       : nb::object(as_tuple(outputs));
  const std::size_t n_tensors = nb::len(input_tuple);
  if (!output_tuple.is_none() && nb::len(output_tuple) != n_tensors) {
    raise_invalid_argument("there are " + std::to_string(n_tensors) + " tensors but " +
                           std::to_string(nb::len(output_tuple)) + " outputs");
  }
  resize(request, n_tensors);
  const dlpack::ExchangeTable* table = nullptr;
  for (std::size_t i = 0; i < n_tensors; ++i) {
    const nb::object output = output_tuple.is_none() ? nb::none() : nb::object(output_tuple[i]);
    table = attach_one(request, i, nb::object(input_tuple[i]), output, reader, share);
  }
  return {{input_tuple, output_tuple}, table};
}

}  // namespace ciranda::python
