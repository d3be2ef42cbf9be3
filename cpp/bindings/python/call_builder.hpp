// CallBuilder: from the arguments of a Python call to the engine's Call. Needs the GIL; throws InvalidArgumentError, or
// a TypeError that names the argument which is of another type.
// Called by EngineHandle.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "bindings/python/session.hpp"
#include "call/call.hpp"

namespace ciranda::python {

// [tensor][rank]; no entries, or empty ones, for equal parts.
using Splits = std::vector<std::vector<std::int64_t>>;

Collective collective_of(int value);
std::optional<double> read_weight(nb::handle weight);
std::int32_t read_priority(nb::handle priority);

// This rank's share of the rows of a tensor: all, unless several ranks share them.
struct Share {
  int n_ranks = 1;
  int index = 0;
};

// Kept for later calls, so that they reuse its memory. The call views this object, and the Python objects from which it
// was built.
class CallBuilder {
 public:
  // A call without tensors, of the terms and of Python's number of a process set and its lane: the set's in the lower
  // half, the lane's in the upper. The highest bit means that all ranks of the set are needed.
  void begin(const Terms& terms, std::uint64_t set_and_lane);
  // Text, or None: then the call is numbered.
  void set_name(nb::handle name);
  // None, or a list of a list of numbers for each tensor.
  void set_splits(nb::handle splits);

  // Adds the tensors. `inputs` is a tensor, or a list or tuple of them; `outputs` the same, `inputs` itself for in
  // place, or None where the engine allocates. Lists are copied, as their owner may change them. `share`: the outputs'
  // share of the inputs' rows; of an allgather, the inputs' share of the outputs' rows. Returns the objects that must
  // be kept until the call is done.
  Session::Tensors add_tensors(nb::handle inputs, nb::handle outputs, TensorReader& reader, Share share);

  // The dtypes of the outputs that the engine allocates; and the library and the place of the last input that is on a
  // GPU, or of the last at all.
  std::vector<DataType> output_dtypes() const;
  const TensorLibrary& library() const { return library_; }
  const Place& place() const { return place_; }
  // Whether a collective along dimension 0 has a tensor without dimensions.
  bool lacks_rows() const;

  Call call;

 private:
  void add_one(std::size_t index, nb::handle input, nb::handle output, TensorReader& reader, Share share);

  std::vector<TensorSignature> inputs_;
  TensorSignature output_;
  std::vector<CallTensor> tensors_;
  Splits splits_;
  TensorLibrary library_;
  Place place_;
};

void bind_terms(nb::module_& m);

}  // namespace ciranda::python
