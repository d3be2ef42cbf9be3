// Run: one run of a collective's op, from its inputs to its outputs. It is the object that native::Call holds.
//
// Ownership: inputs stay referenced until the call has ended. Outputs whose size is known before are in TensorFlow's
// memory, possibly that of an input without other uses. The other outputs are in the operation's memory, which is
// released when TensorFlow releases the tensor.
// Threads: created and submitted by a thread of TensorFlow, ended by a thread of the engine, which only forwards.
//
// Called by ops.hpp; through native::Call by the engine, which ends it.
#pragma once

#include <ciranda/table.h>

#include <ciranda/native/call.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bindings/tensorflow/attributes.hpp"
#include "bindings/tensorflow/tf_api.hpp"

namespace ciranda::tensorflow {

class Run {
 public:
  // The memory of a collective's results.
  enum class Outputs { kAsInputs, kAllocatedByEngine, kNone, kValue };

  Run(TF_OpKernelContext* context, Done done) : context_(context), done_(std::move(done)) {}

  // Takes the inputs, and memory for outputs. On failure reports it to TensorFlow and returns false. If `has_splits`,
  // one vector of splits for each tensor follows all tensors; an empty vector means equal parts.
  bool prepare(Outputs outputs, bool has_splits);

  // Submits the request; the run ends by itself.
  static void submit(std::unique_ptr<Run> run, const Attributes& attributes, ciranda_collective collective);

  void end(const native::Outcome& outcome);

 private:
  bool take_input(int index);
  bool take_splits(int n_tensors);
  Tensor input_at(int index);
  void set_outputs(const native::Outcome& outcome);
  void set_output(int index, DataType dtype, const native::Outcome& outcome);
  void set_counts(int index, const native::Outcome& outcome);
  void set_value(std::int64_t value);
  void fail(Code code, const std::string& message);
  bool check(const Status& status);
  void finish();

  TF_OpKernelContext* context_;
  Done done_;
  Outputs outputs_ = Outputs::kNone;
  // True if an iteration of a loop has the same name as an earlier one.
  bool repeats_name_ = false;
  std::vector<Tensor> held_;
  std::vector<std::vector<std::int64_t>> shapes_;
  std::vector<std::vector<std::int64_t>> splits_;
  std::vector<DataType> splits_dtypes_;
  std::vector<ciranda_tensor> tensors_;
};

}  // namespace ciranda::tensorflow
