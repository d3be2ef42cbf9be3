#include "bindings/tensorflow/run.hpp"

#include <optional>
#include <utility>

#include "bindings/tensorflow/tables.hpp"

namespace ciranda::tensorflow {
namespace {

std::vector<std::int64_t> shape_of(const TF_Tensor* tensor) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(tf().NumDims(tensor)));
  for (std::size_t i = 0; i < shape.size(); ++i) shape[i] = tf().Dim(tensor, static_cast<int>(i));
  return shape;
}

// TensorFlow runs up to `n_at_once` iterations of a loop concurrently, which need different names.
std::string name_in_loop(const std::string& name, std::int64_t iteration, std::int64_t n_at_once) {
  const std::int64_t number = iteration % n_at_once;
  return number == 0 ? name : name + "#" + std::to_string(number);
}

constexpr const char* kTooManyAtOnce =
    " If this function was traced before a loop, and more than 1024 iterations of the loop call it at the same time: "
    "trace it in the loop, or give tf.while_loop at most 1024 parallel_iterations.";

void let_go(void* /*data*/, std::size_t /*len*/, void* kept) {
  std::unique_ptr<native::Kept> gone(static_cast<native::Kept*>(kept));
}

}  // namespace

Tensor Run::input_at(int index) {
  const Status status;
  TF_Tensor* input = nullptr;
  tf().GetInput(context_, index, &input, status.get());
  Tensor tensor(input);
  if (!check(status)) return nullptr;
  return tensor;
}

bool Run::take_input(int index) {
  Tensor input = input_at(index);
  if (!input) return false;
  const std::optional<std::int32_t> dtype = kDtypes.ours(tf().TensorType(input.get()));
  if (!dtype) {
    fail(kInvalidArgument, "InvalidArgument: a tensor of a type that the engine does not know");
    return false;
  }
  const std::vector<std::int64_t>& shape = shapes_.emplace_back(shape_of(input.get()));
  ciranda_tensor tensor{};
  tensor.shape = shape.data();
  tensor.ndim = static_cast<std::int32_t>(shape.size());
  tensor.dtype = *dtype;
  if (outputs_ == Outputs::kAsInputs) {
    // TensorFlow forwards an input's memory to an output only if there is no other reference, so this one is dropped.
    input.reset();
    const Status status;
    int forwarded = -1;
    Tensor output(tf().ForwardInputOrAllocateOutput(context_, &index, 1, index, shape.data(), tensor.ndim, &forwarded,
                                                    status.get()));
    if (!check(status)) return false;
    tensor.output = tf().TensorData(output.get());
    if (forwarded == index) {
      tensor.input = tensor.output;
    } else {
      input = input_at(index);
      if (!input) return false;
    }
    held_.push_back(std::move(output));
  }
  if (input) {
    tensor.input = tf().TensorData(input.get());
    held_.push_back(std::move(input));
  }
  tensors_.push_back(tensor);
  return true;
}

bool Run::take_splits(int n_tensors) {
  for (int i = 0; i < n_tensors; ++i) {
    const Tensor given = input_at(n_tensors + i);
    if (!given) return false;
    if (tf().NumDims(given.get()) != 1) {
      fail(kInvalidArgument, "InvalidArgument: splits must be a vector, one number for each rank");
      return false;
    }
    const DataType dtype = tf().TensorType(given.get());
    const auto count = static_cast<std::size_t>(tf().Dim(given.get(), 0));
    const void* data = tf().TensorData(given.get());
    std::vector<std::int64_t>& splits = splits_.emplace_back(count);
    for (std::size_t j = 0; j < count; ++j) {
      splits[j] =
          dtype == kInt64 ? static_cast<const std::int64_t*>(data)[j] : static_cast<const std::int32_t*>(data)[j];
    }
    splits_dtypes_.push_back(dtype);
    ciranda_tensor& tensor = tensors_[static_cast<std::size_t>(i)];
    if (count != 0) tensor.splits = splits.data();
    tensor.splits_count = count;
  }
  return true;
}

bool Run::prepare(Outputs outputs, bool has_splits) {
  outputs_ = outputs;
  const int n_tensors = has_splits ? tf().NumInputs(context_) / 2 : tf().NumInputs(context_);
  shapes_.reserve(static_cast<std::size_t>(n_tensors));
  splits_.reserve(static_cast<std::size_t>(n_tensors));
  for (int i = 0; i < n_tensors; ++i) {
    if (!take_input(i)) return false;
  }
  return !has_splits || take_splits(n_tensors);
}

void Run::submit(std::unique_ptr<Run> run, const Attributes& attributes, ciranda_collective collective) {
  ciranda_request request = attributes.request(collective);
  const std::int64_t iteration = tf().GetIterId(run->context_);
  run->repeats_name_ = iteration >= attributes.iterations;
  const std::string name = name_in_loop(attributes.name, iteration, attributes.iterations);
  if (request.name != nullptr) request.name = name.c_str();
  request.tensors = run->tensors_.data();
  request.tensors_count = run->tensors_.size();
  native::submit(std::move(run), request);
}

void Run::end(const native::Outcome& outcome) {
  if (outcome.status == CIRANDA_OK) {
    set_outputs(outcome);
    finish();
  } else {
    const char* const way_out = repeats_name_ && outcome.status == CIRANDA_INVALID_ARGUMENT ? kTooManyAtOnce : "";
    fail(kCodes.theirs(outcome.status).value_or(kInternal), message_of(outcome) + way_out);
  }
}

void Run::set_outputs(const native::Outcome& outcome) {
  if (outputs_ == Outputs::kValue) set_value(ciranda_operation_value(outcome.operation));
  if (outputs_ != Outputs::kAllocatedByEngine) return;
  const int n_tensors = static_cast<int>(tensors_.size());
  for (int i = 0; i < n_tensors; ++i) {
    set_output(i, *kDtypes.theirs(tensors_[static_cast<std::size_t>(i)].dtype), outcome);
  }
  for (int i = 0; i < static_cast<int>(splits_.size()); ++i) set_counts(n_tensors + i, outcome);
}

void Run::set_output(int index, DataType dtype, const native::Outcome& outcome) {
  auto kept = std::make_unique<native::Kept>(outcome);
  const ciranda_output output = kept->output(static_cast<std::size_t>(index));
  const Status status;
  Tensor tensor;
  if (output.n_bytes == 0) {
    tensor.reset(tf().AllocateOutput(context_, index, dtype, output.shape, output.ndim, 0, status.get()));
  } else {
    // The const can be cast away: TensorFlow writes to the memory only if it has the last reference to it.
    void* const data = const_cast<void*>(output.data);
    tensor.reset(tf().NewTensor(dtype, output.shape, output.ndim, data, output.n_bytes, &let_go, kept.get()));
    if (tensor) (void)kept.release();
    if (tensor) tf().SetOutput(context_, index, tensor.get(), status.get());
  }
  if (!status.ok()) tf().OpKernelContext_Failure(context_, status.get());
}

void Run::set_counts(int index, const native::Outcome& outcome) {
  const native::Kept kept(outcome);
  const ciranda_output counts = kept.output(static_cast<std::size_t>(index));
  const auto n_ranks = static_cast<std::size_t>(counts.shape[0]);
  const auto* numbers = static_cast<const std::int64_t*>(counts.data);
  const bool is_wide = splits_dtypes_[static_cast<std::size_t>(index) - tensors_.size()] == kInt64;
  const std::size_t n_bytes = n_ranks * (is_wide ? sizeof(std::int64_t) : sizeof(std::int32_t));
  const Status status;
  const Tensor tensor(tf().AllocateOutput(context_, index, is_wide ? kInt64 : kInt32, counts.shape, counts.ndim,
                                          n_bytes, status.get()));
  if (!status.ok()) return tf().OpKernelContext_Failure(context_, status.get());
  void* const data = tf().TensorData(tensor.get());
  for (std::size_t i = 0; i < n_ranks; ++i) {
    if (is_wide) {
      static_cast<std::int64_t*>(data)[i] = numbers[i];
    } else {
      static_cast<std::int32_t*>(data)[i] = static_cast<std::int32_t>(numbers[i]);
    }
  }
}

void Run::set_value(std::int64_t value) {
  const Status status;
  const Tensor tensor(tf().AllocateOutput(context_, 0, kInt32, nullptr, 0, sizeof(std::int32_t), status.get()));
  if (!status.ok()) return tf().OpKernelContext_Failure(context_, status.get());
  *static_cast<std::int32_t*>(tf().TensorData(tensor.get())) = static_cast<std::int32_t>(value);
}

bool Run::check(const Status& status) {
  if (status.ok()) return true;
  tf().OpKernelContext_Failure(context_, status.get());
  finish();
  return false;
}

void Run::fail(Code code, const std::string& message) {
  tf().OpKernelContext_Failure(context_, Status(code, message).get());
  finish();
}

void Run::finish() {
  held_.clear();  // done_() may destroy the context
  done_();
}

}  // namespace ciranda::tensorflow
