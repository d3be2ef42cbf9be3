#include "bindings/python/call_builder.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>
#include <string_view>
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

Terms read_terms(int collective, nb::handle op, nb::handle root, nb::handle prescale, nb::handle postscale,
                 bool divides_by_all) {
  return used({collective_of(collective), reduce_op_of(read<int>(op, "op", "Average, Sum, Min, Max or Product")),
               read<int>(root, "root_rank", "a whole number"), read<double>(prescale, "prescale_factor", "a number"),
               read<double>(postscale, "postscale_factor", "a number"), divides_by_all});
}

nb::tuple as_tuple(nb::handle sequence) {
  PyObject* tuple = PySequence_Tuple(sequence.ptr());
  if (tuple == nullptr) throw nb::python_error();
  return nb::steal<nb::tuple>(tuple);
}

bool is_group(nb::handle inputs) { return PyList_Check(inputs.ptr()) != 0 || PyTuple_Check(inputs.ptr()) != 0; }

// Throws unless `output` is as the result of the tensor must be: as the tensor, but for its rows where ranks share them
// (reducescatter), or each contributes the same number (allgather).
void check_output(const TensorSignature& output, const TensorSignature& input, Collective collective, Share share) {
  TensorSignature result = input;
  if (share.n_ranks > 1 && !input.shape.empty()) {
    result.shape.front() = n_rows_of_result(collective, input.shape.front(), share.index, share.n_ranks);
  }
  if (output == result) return;
  raise_invalid_argument("the output is " + std::string(to_string(output.dtype)) + to_string(output.shape) +
                         " but the " + (share.n_ranks > 1 ? "result" : "input") + " is " +
                         std::string(to_string(result.dtype)) + to_string(result.shape));
}

[[noreturn]] void raise_apart(const Place& input, const Place& output) {
  raise_invalid_argument("the input is " + to_string(input) + " but the output is " + to_string(output) +
                         "; both must be in one memory");
}

}  // namespace

Collective collective_of(int value) {
  const auto collective = from_number(value, collective_from_wire);
  if (!collective) raise_invalid_argument("there is no collective number " + std::to_string(value));
  return *collective;
}

std::optional<double> read_weight(nb::handle weight) {
  return read<std::optional<double>>(weight, "weight", "a number or None");
}

std::int32_t read_priority(nb::handle priority) { return read<std::int32_t>(priority, "priority", "a whole number"); }

void CallBuilder::begin(const Terms& terms, std::uint64_t set_and_lane) {
  constexpr std::uint32_t kNeedsAll = 1U << 31U;
  const auto upper = static_cast<std::uint32_t>(set_and_lane >> 32U);
  call = Call{terms};
  call.process_set = static_cast<std::uint32_t>(set_and_lane);
  call.lane = upper & ~kNeedsAll;
  call.needs_all = (upper & kNeedsAll) != 0;
  call.is_cacheable = false;
  library_ = {};
  place_ = {};
}

void CallBuilder::set_name(nb::handle name) {
  call.is_cacheable = !name.is_none();
  if (name.is_none()) return;
  call.name = read<std::string_view>(name, "name", "text, which can be written as UTF-8, or None");
}

void CallBuilder::set_splits(nb::handle splits) {
  if (splits.is_none()) return;
  splits_ = nb::cast<Splits>(splits);
  call.splits = splits_;
}

void CallBuilder::add_one(std::size_t index, nb::handle input, nb::handle output, TensorReader& reader, Share share) {
  TensorSignature& signature = inputs_[index];
  CallTensor& tensor = tensors_[index];
  const bool is_in_place = output.is(input) && share.n_ranks == 1;
  const bool has_output = !output.is_none() && !is_in_place;
  tensor.memory = {};
  Place of_output;
  if (has_output) {
    const TensorView view = reader.read(output, Access::kWrite, output_);
    tensor.memory.output = view.address;
    of_output = view.place;
  }
  TensorView view = reader.read(input, is_in_place ? Access::kWrite : Access::kRead, signature);
  if (has_output && !of_output.is_beside(view.place)) raise_apart(view.place, of_output);
  tensor.memory.input = view.address;
  if (is_in_place) tensor.memory.output = view.address;
  if (has_output) check_output(output_, signature, call.collective, share);
  tensor.dtype = signature.dtype;
  tensor.shape = signature.shape;
  tensor.memory.place = view.place;
  if (view.place.is_host() && !place_.is_host()) return;  // those on a GPU are what a wait is for
  place_ = view.place;
  library_ = std::move(view.library);
}

Session::Tensors CallBuilder::add_tensors(nb::handle inputs, nb::handle outputs, TensorReader& reader, Share share) {
  call.has_room_for_all = !outputs.is_none() && info(call.collective).output == Output::kMayHaveRoom;
  const bool is_in_place = outputs.is(inputs);
  const auto resize = [&](std::size_t n_tensors) {
    inputs_.resize(n_tensors);
    tensors_.resize(n_tensors);
  };
  if (!is_group(inputs)) {
    resize(1);
    add_one(0, inputs, outputs, reader, share);
    call.tensors = tensors_;
    return {nb::borrow(inputs), is_in_place ? nb::object() : nb::borrow(outputs)};
  }
  const nb::tuple input_tuple = as_tuple(inputs);
  const nb::object output_tuple = outputs.is_none() ? nb::none()
                                  : is_in_place     ? nb::object(input_tuple)
                                                    : nb::object(as_tuple(outputs));
  const std::size_t n_tensors = nb::len(input_tuple);
  if (!output_tuple.is_none() && nb::len(output_tuple) != n_tensors) {
    raise_invalid_argument("there are " + std::to_string(n_tensors) + " tensors but " +
                           std::to_string(nb::len(output_tuple)) + " outputs");
  }
  resize(n_tensors);
  for (std::size_t i = 0; i < n_tensors; ++i) {
    const nb::object output = output_tuple.is_none() ? nb::none() : nb::object(output_tuple[i]);
    add_one(i, nb::object(input_tuple[i]), output, reader, share);
  }
  call.tensors = tensors_;
  return {input_tuple, output_tuple};
}

std::vector<DataType> CallBuilder::output_dtypes() const {
  const CollectiveInfo& facts = info(call.collective);
  std::vector<DataType> dtypes;
  if (!facts.allocates_output) return dtypes;
  for (const CallTensor& tensor : call.tensors) dtypes.push_back(tensor.dtype);
  const bool has_received_splits = facts.takes_splits && !facts.is_from_root;
  if (has_received_splits) dtypes.resize(2 * dtypes.size(), DataType::kInt64);
  return dtypes;
}

bool CallBuilder::lacks_rows() const {
  return info(call.collective).is_along_rows &&
         std::ranges::any_of(call.tensors, [](const CallTensor& tensor) { return tensor.shape.empty(); });
}

void bind_terms(nb::module_& m) {
  nb::class_<Terms>(m, "Terms", "What ranks must ask alike of a call, beside its tensors. Made once, used by many.")
      .def(
          "__init__",
          [](Terms* self, int collective, nb::handle op, nb::handle root, nb::handle prescale, nb::handle postscale,
             bool divides_by_all) {
            new (self) Terms(read_terms(collective, op, root, prescale, postscale, divides_by_all));
          },
          nb::arg("collective"), nb::arg("op"), nb::arg("root"), nb::arg("prescale"), nb::arg("postscale"),
          nb::arg("divides_by_all"));
}

}  // namespace ciranda::python
