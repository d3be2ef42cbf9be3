#include "bindings/mxnet/running.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>

#include "bindings/mxnet/failed_operations.hpp"
#include "bindings/mxnet/failed_results.hpp"
#include "bindings/mxnet/last_error.hpp"
#include "bindings/mxnet/tables.hpp"

namespace ciranda::mxnet {

namespace {

constexpr const char* kBinding = "ciranda.mxnet";
constexpr std::int32_t kShapeOfNothing = 7;

PushedNames& pushed_names() {
  static PushedNames* const names = new PushedNames;  // never freed: calls may end while the process ends
  return *names;
}

bool is_rooted(std::int32_t collective) { return collective == CIRANDA_BROADCAST; }

bool combines(std::int32_t collective) {
  return collective == CIRANDA_ALLREDUCE || collective == CIRANDA_REDUCESCATTER;
}

// The text by which Python finds the class of an error.
std::string text_of(ciranda_status status, const std::string& message) {
  return std::string(kKinds.theirs(status).value_or("CirandaInternal")) + ": " + message;
}

// 0 on failure.
std::size_t n_bytes_of(ArrayHandle array, std::size_t n_bytes_of_element) {
  int ndim = 0;
  const std::int64_t* shape = nullptr;
  if (mx().NDArrayGetShapeEx64(array, &ndim, &shape) != 0) return 0;
  std::size_t n_bytes = n_bytes_of_element;
  for (int dimension = 0; dimension < ndim; ++dimension) n_bytes *= static_cast<std::size_t>(shape[dimension]);
  return n_bytes;
}

}  // namespace

std::size_t n_pushed_names() { return pushed_names().count(); }

Running::~Running() {
  if (has_name_) pushed_names().end({world_.get(), asked_.process_set, asked_.name});
}

std::string Running::problem_of(ArrayHandle array, std::int32_t* dtype) const {
  int storage = kDense;
  int type = 0;
  int device = 0;
  int number = 0;
  if (memory_of(array) == nullptr) return "an array that has no memory yet cannot be communicated";
  if (mx().NDArrayGetStorageType(array, &storage) != 0 || mx().NDArrayGetDType(array, &type) != 0 ||
      mx().NDArrayGetContext(array, &device, &number) != 0) {
    return mx().GetLastError();
  }
  if (storage != kDense) return "a sparse array was given to a function of dense ones: use array.tostype('default')";
  if (device == kGpu) {
    return "the array is on gpu(" + std::to_string(number) +
           "), but only arrays in the memory of the CPU are supported: use array.as_in_context(mx.cpu())";
  }
  const std::optional<std::int32_t> found = kDtypes.ours(type);
  if (!found) return "an array of MXNet's type number " + std::to_string(type) + " cannot be communicated";
  *dtype = *found;
  if (combines(asked_.collective) && ciranda_reduce_op_accepts(asked_.op, *dtype) == 0) {
    const char* const op = ciranda_reduce_op_name(asked_.op);
    return op == nullptr ? "there is no reduction with number " + std::to_string(asked_.op)
                         : std::string("arrays of ") + ciranda_dtype_name(*dtype) + " cannot be combined by " + op;
  }
  return "";
}

std::string Running::problem_of_set() const {
  std::vector<std::int32_t> ranks(ciranda_process_set_ranks(world_.get(), asked_.set_number(), nullptr, 0));
  (void)ciranda_process_set_ranks(world_.get(), asked_.set_number(), ranks.data(), ranks.size());
  const auto has = [&](std::int32_t rank) { return std::find(ranks.begin(), ranks.end(), rank) != ranks.end(); };
  const std::string set = "process set " + std::to_string(asked_.set_number());
  if (ranks.empty()) return set + " does not exist in this world";
  if (!has(ciranda_rank(world_.get()))) {
    return "rank " + std::to_string(ciranda_rank(world_.get())) + " is not in " + set;
  }
  if (is_rooted(asked_.collective) && !has(asked_.root)) {
    return "root rank " + std::to_string(asked_.root) + " is not in " + set;
  }
  return "";
}

std::string Running::prepare(ArrayHandle* inputs, ArrayHandle* outputs, std::size_t count, ArrayHandle carrier) {
  if (!world_) return native::kNotInitialized;
  if (asked_.name.empty()) return "a name must not be empty";
  std::string problem = problem_of_set();
  if (!problem.empty()) return problem;
  for (std::size_t i = 0; i < count; ++i) {
    std::int32_t of_input = 0;
    std::int32_t of_output = 0;
    problem = problem_of(inputs[i], &of_input);
    if (problem.empty() && outputs[i] != inputs[i]) problem = problem_of(outputs[i], &of_output);
    if (!problem.empty()) return problem;
    dtypes_.push_back(of_input);
    outputs_.push_back(share(outputs[i]));
    inputs_.push_back(share(inputs[i]));
    if (!inputs_.back() || !outputs_.back()) return mx().GetLastError();
    const bool is_read_only = carrier != nullptr;
    if (!is_read_only) uses_.written.push_back(memory_of(outputs[i]));
    if (is_read_only || outputs[i] != inputs[i]) uses_.read.push_back(memory_of(inputs[i]));
  }
  if (carrier != nullptr) carrier_ = share(carrier);
  has_name_ = pushed_names().begin({world_.get(), asked_.process_set, asked_.name}, uses_, asked_.is_chained);
  if (!has_name_) {
    return "the name is in use: the previous call with this name has not ended; wait for its result, or give each call "
           "its own name";
  }
  return "";
}

std::vector<ArrayHandle> Running::written() const {
  return carrier_ ? std::vector<ArrayHandle>{carrier_.get()} : one_each(outputs_);
}

std::vector<ArrayHandle> Running::read() const { return one_each(inputs_, uses_.written); }

bool Running::writes(ArrayHandle array) const {
  return std::find(uses_.written.begin(), uses_.written.end(), memory_of(array)) != uses_.written.end();
}

std::string Running::take_tensors() {
  shapes_.reserve(inputs_.size());
  tensors_.reserve(inputs_.size());
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    void* input = nullptr;
    void* output = nullptr;
    int ndim = 0;
    const std::int64_t* shape = nullptr;
    // If an input shares memory with a written array, the operation may write the input, too.
    std::string problem = carrier_ ? "" : data_to_write(outputs_[i].get(), &output);
    if (problem.empty()) {
      problem = writes(inputs_[i].get()) ? data_to_write(inputs_[i].get(), &input)
                                         : data_to_read(inputs_[i].get(), copies_, &input);
    }
    if (!problem.empty()) return problem;
    if (carrier_) output = input;
    if (mx().NDArrayGetShapeEx64(inputs_[i].get(), &ndim, &shape) != 0) return mx().GetLastError();
    shapes_.emplace_back(shape, shape + std::max(ndim, 0));
    ciranda_tensor tensor{};
    tensor.input = input;
    tensor.output = output;
    tensor.shape = shapes_.back().data();
    tensor.ndim = static_cast<std::int32_t>(shapes_.back().size());
    tensor.dtype = dtypes_[i];
    tensors_.push_back(tensor);
  }
  return "";
}

bool Running::outputs_overlap() const {
  std::vector<std::pair<const char*, const char*>> ranges;
  for (const ciranda_tensor& tensor : tensors_) {
    std::size_t n_bytes = ciranda_dtype_size(tensor.dtype);
    for (std::int32_t i = 0; i < tensor.ndim; ++i) n_bytes *= static_cast<std::size_t>(tensor.shape[i]);
    const auto* const begin = static_cast<const char*>(tensor.output);
    if (n_bytes != 0) ranges.emplace_back(begin, begin + n_bytes);
  }
  std::sort(ranges.begin(), ranges.end());
  const auto meets_next = [](const auto& one, const auto& next) { return next.first < one.second; };
  return std::adjacent_find(ranges.begin(), ranges.end(), meets_next) != ranges.end();
}

ciranda_request Running::request() const {
  ciranda_request request = CIRANDA_REQUEST_INIT;
  request.collective = asked_.collective;
  request.op = asked_.op;
  request.root = asked_.root;
  request.prescale = asked_.prescale;
  request.postscale = asked_.postscale;
  request.flags = CIRANDA_REQUEST_DIRECT_CALLBACK;
  if (asked_.divides_by_all) request.flags |= CIRANDA_REQUEST_DIVIDE_BY_ALL;
  native::take_process_set(asked_.process_set, request);
  request.name = asked_.name.c_str();
  request.tensors = tensors_.data();
  request.tensors_count = tensors_.size();
  request.priority = asked_.priority;
  request.binding = kBinding;
  return request;
}

void Running::submit(std::unique_ptr<Running> running, const OnComplete& done) {
  running->done_ = done;
  std::string problem;
  try {
    problem = running->take_tensors();
  } catch (const std::exception& error) {
    problem = error.what();
  }
  if (!problem.empty()) {
    running->tell(CIRANDA_INTERNAL, "'" + running->asked_.name + "': " + problem);
    return;
  }
  // A reducescatter's outputs are smaller than its inputs, and the binding allocates them.
  if (running->asked_.collective != CIRANDA_REDUCESCATTER && running->outputs_overlap()) {
    running->tell(CIRANDA_INVALID_ARGUMENT, "'" + running->asked_.name + "': two arrays to be written to overlap");
    return;
  }
  ciranda_context* const world = running->world_.get();
  const ciranda_request request = running->request();
  native::submit(world, std::move(running), request);
}

void Running::submit_nothing(std::unique_ptr<Running> running) {
  running->leave_outputs();
  if (ciranda_context_is_open(running->world_.get()) == 0) return;
  running->shapes_.assign(1, std::vector<std::int64_t>(kShapeOfNothing, 0));
  ciranda_tensor nothing{};
  nothing.shape = running->shapes_.front().data();
  nothing.ndim = kShapeOfNothing;
  nothing.dtype = running->dtypes_.front();
  running->tensors_.assign(1, nothing);
  ciranda_context* const world = running->world_.get();
  const ciranda_request request = running->request();
  native::submit(world, std::move(running), request);
}

void Running::fail_outputs(const std::string& message) const {
  if (carrier_) return;
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    failed_results().add(outputs_[i].get(), message);
    if (is_in_place(i) || i >= tensors_.size()) continue;
    const ciranda_tensor& tensor = tensors_[i];
    const std::size_t n_bytes = n_bytes_of(outputs_[i].get(), ciranda_dtype_size(tensor.dtype));
    if (n_bytes != 0) std::memset(tensor.output, tensor.dtype == CIRANDA_BOOL ? 1 : 0xFF, n_bytes);
  }
}

void Running::leave_outputs() const {
  if (carrier_) return;
  std::string message;
  for (const Array& input : inputs_) {
    if (message.empty()) message = failed_results().message_of(input.get());
  }
  if (message.empty()) message = text_of(CIRANDA_ABORTED, "'" + asked_.name + "': an array that it needs has failed");
  for (const Array& output : outputs_) failed_results().add_left_out(output.get(), message);
}

bool Running::is_in_place(std::size_t i) const { return memory_of(inputs_[i].get()) == memory_of(outputs_[i].get()); }

void Running::end(const native::Outcome& outcome) { tell(outcome.status, outcome.message); }

void Running::tell(ciranda_status status, const std::string& message) {
  if (has_name_) pushed_names().end({world_.get(), asked_.process_set, std::exchange(asked_.name, "")});
  has_name_ = false;
  if (status == CIRANDA_OK) {
    if (done_.callback != nullptr) done_.callback(done_.engine, done_.operation, nullptr);
    return;
  }
  const std::string text = text_of(status, message);
  if (done_.callback == nullptr) return;  // MXNet has skipped the operation with another error
  fail_outputs(text);
  last_error().note(status, message);
  if (report_) *report_ = text;
  failed_operations().add(done_, text, status == CIRANDA_RANKS_LOST || status == CIRANDA_ABORTED);
}

}  // namespace ciranda::mxnet
