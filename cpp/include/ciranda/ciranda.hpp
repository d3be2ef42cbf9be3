// ciranda.hpp: the C++20 face of ciranda.h, header-only: contexts and operations that end themselves, spans for
// tensors, exceptions for errors.
//
//   ciranda::Context circle;                                  // joins; the environment says which rank this is
//   std::vector<float> gradient(1024, 1.0f);
//   circle.allreduce(std::span(gradient), {.name = "gradient", .op = ciranda::ReduceOp::kAverage});
//
// Threads: a Context may be used from any thread, an Operation by one thread at a time. Neither may be destroyed while
// another thread is using it.
// Ownership: spans are the caller's, and must stay valid and their outputs unread until the operation is done. An
// Operation that is destroyed while pending waits until it is done, so that memory cannot go away under it.
// Failure: constructors and waits throw ciranda::Error; destructors and moves do not throw.
#pragma once

#include <ciranda/ciranda.h>

#include <complex>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace ciranda {
inline namespace v1 {

// What the caller can do about an error: see the constants in ciranda.h.
enum class ErrorKind : std::int32_t {
  kInvalidArgument = CIRANDA_INVALID_ARGUMENT,
  kMismatch = CIRANDA_MISMATCH,
  kRanksLost = CIRANDA_RANKS_LOST,
  kTimeout = CIRANDA_TIMEOUT,
  kAborted = CIRANDA_ABORTED,
  kInternal = CIRANDA_INTERNAL,
};

enum class ReduceOp : std::int32_t {
  kAverage = CIRANDA_AVERAGE,
  kSum = CIRANDA_SUM,
  kAdasum = CIRANDA_ADASUM,
  kMin = CIRANDA_MIN,
  kMax = CIRANDA_MAX,
  kProduct = CIRANDA_PRODUCT,
  kBitwiseAnd = CIRANDA_BITWISE_AND,
  kBitwiseOr = CIRANDA_BITWISE_OR,
  kBitwiseXor = CIRANDA_BITWISE_XOR,
  kLogicalAnd = CIRANDA_LOGICAL_AND,
  kLogicalOr = CIRANDA_LOGICAL_OR,
  kLogicalXor = CIRANDA_LOGICAL_XOR,
};

class Error : public std::runtime_error {
 public:
  Error(ciranda_status status, const std::string& message)
      : std::runtime_error(message.empty() ? ciranda_status_name(status) : message), status_(status) {}

  ErrorKind kind() const noexcept { return static_cast<ErrorKind>(status_); }
  ciranda_status status() const noexcept { return status_; }

 private:
  ciranda_status status_;
};

// The dtype of a C++ type. Specialise it for a 16-bit floating-point type of yours:
//   template <> struct ciranda::DataTypeOf<MyHalf> { static constexpr ciranda_dtype value = CIRANDA_FLOAT16; };
template <typename T>
struct DataTypeOf {
  static_assert(std::is_arithmetic_v<T> && sizeof(T) <= 8, "ciranda has no dtype for this type");
  static constexpr ciranda_dtype of_integer(std::size_t n_bytes, bool is_signed) {
    const ciranda_dtype smallest = is_signed ? CIRANDA_INT8 : CIRANDA_UINT8;
    return smallest + (n_bytes == 1 ? 0 : n_bytes == 2 ? 1 : n_bytes == 4 ? 2 : 3);
  }
  static constexpr ciranda_dtype value = std::is_same_v<T, bool>     ? CIRANDA_BOOL
                                         : std::is_same_v<T, float>  ? CIRANDA_FLOAT32
                                         : std::is_same_v<T, double> ? CIRANDA_FLOAT64
                                                                     : of_integer(sizeof(T), std::is_signed_v<T>);
};

template <>
struct DataTypeOf<std::complex<float>> {
  static constexpr ciranda_dtype value = CIRANDA_COMPLEX64;
};
template <>
struct DataTypeOf<std::complex<double>> {
  static constexpr ciranda_dtype value = CIRANDA_COMPLEX128;
};

// Names identify a tensor across ranks and steps; an empty one is made up from the order of calls.
struct ReduceOptions {
  std::string name = {};
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  std::optional<double> weight = {};  // of this rank, in a weighted average
  bool deferrable = false;            // may be held back to travel with others; wait for it
};

struct BroadcastOptions {
  std::string name = {};
  std::int32_t root = 0;
};

// Row shapes are those of one element along dimension 0: {3} for an input of n x 3. Empty: a vector.
struct GatherOptions {
  std::string name = {};
  std::vector<std::int64_t> row_shape = {};
};

struct ReducescatterOptions {
  std::string name = {};
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  std::vector<std::int64_t> row_shape = {};
};

struct AlltoallOptions {
  std::string name = {};
  std::vector<std::int64_t> splits = {};  // rows for each rank; empty: equal parts
  std::vector<std::int64_t> row_shape = {};
};

struct RootedReduceOptions {
  std::string name = {};
  std::int32_t root = 0;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
};

struct RootedGatherOptions {
  std::string name = {};
  std::int32_t root = 0;
  std::vector<std::int64_t> row_shape = {};
};

struct ScatterOptions {
  std::string name = {};
  std::int32_t root = 0;
  std::vector<std::int64_t> splits = {};  // the root's: rows for each rank; empty: equal parts, the rest in front
  std::vector<std::int64_t> row_shape = {};
};

// A pending or finished request. Movable; an empty one (moved from) may only be destroyed or assigned to.
class Operation {
 public:
  Operation() noexcept = default;
  explicit Operation(ciranda_operation* handle) noexcept : handle_(handle) {}
  Operation(Operation&&) noexcept = default;
  Operation& operator=(Operation&& other) noexcept {
    Operation(std::move(other)).swap(*this);
    return *this;
  }
  ~Operation() {
    if (handle_) ciranda_wait(handle_.get());
  }

  void swap(Operation& other) noexcept { handle_.swap(other.handle_); }

  bool is_done() const noexcept { return ciranda_poll(handle_.get()) != 0; }

  // Returns when it is done; throws Error if it failed.
  void wait() const {
    const ciranda_status status = ciranda_wait(handle_.get());
    if (status != CIRANDA_OK) throw Error(status, ciranda_operation_message(handle_.get()));
  }

  ciranda_operation* get() const noexcept { return handle_.get(); }

 private:
  struct Release {
    void operator()(ciranda_operation* handle) const noexcept { ciranda_operation_release(handle); }
  };
  std::unique_ptr<ciranda_operation, Release> handle_;
};

// A result that the library allocated: of an allgather, reducescatter, alltoall, gather or scatter. The values live as
// long as this.
template <typename T>
class Gathered {
 public:
  // Waits. Empty where the operation has no output: a gather's, on ranks other than the root. REQUIRES: the operation
  // of one of those, of one tensor of T.
  explicit Gathered(Operation operation) : operation_(std::move(operation)) {
    operation_.wait();
    if (ciranda_operation_outputs_count(operation_.get()) == 0) return;
    const ciranda_status status = ciranda_operation_output(operation_.get(), 0, &output_);
    if (status != CIRANDA_OK) throw Error(status, "this operation has no output");
  }

  std::span<const T> values() const noexcept {
    return {static_cast<const T*>(output_.data), output_.n_bytes / sizeof(T)};
  }
  std::span<const std::int64_t> shape() const noexcept {
    return {output_.shape, static_cast<std::size_t>(output_.ndim)};
  }
  // How many rows came from each rank; empty unless it is an alltoall's.
  std::span<const std::int64_t> received() const noexcept {
    ciranda_output output{};
    if (ciranda_operation_output(operation_.get(), 1, &output) != CIRANDA_OK) return {};
    return {static_cast<const std::int64_t*>(output.data), output.n_bytes / sizeof(std::int64_t)};
  }

 private:
  Operation operation_;
  ciranda_output output_{};
};

// The circle of ranks that this process belongs to. Joining blocks until all ranks have come; the destructor leaves.
class Context {
 public:
  using Settings = std::vector<std::pair<std::string, std::string>>;

  Context() : Context(Settings{}) {}

  // Settings go before the environment: {{"CIRANDA_STALL_WARNING_SECONDS", "5"}}.
  explicit Context(const Settings& settings) {
    std::vector<ciranda_setting> rows;
    for (const auto& [name, value] : settings) rows.push_back({name.c_str(), value.c_str()});
    ciranda_options options = CIRANDA_OPTIONS_INIT;
    options.settings = rows.data();
    options.settings_count = rows.size();
    ciranda_context* context = nullptr;
    std::string message(4096, '\0');
    const ciranda_status status = ciranda_init(&options, &context, message.data(), message.size());
    if (status != CIRANDA_OK) throw Error(status, message.c_str());
    context_.reset(context);
  }

  int rank() const noexcept { return ciranda_rank(context_.get()); }
  int size() const noexcept { return ciranda_size(context_.get()); }
  int local_rank() const noexcept { return ciranda_local_rank(context_.get()); }
  int local_size() const noexcept { return ciranda_local_size(context_.get()); }
  int cross_rank() const noexcept { return ciranda_cross_rank(context_.get()); }
  int cross_size() const noexcept { return ciranda_cross_size(context_.get()); }

  // REQUIRES: input and output of the same length, and equal or not overlapping.
  template <typename T>
  [[nodiscard]] Operation allreduce_async(std::span<const T> input, std::span<T> output,
                                          const ReduceOptions& options = {}) {
    require(input.size() == output.size(), "allreduce: input and output differ in length");
    const auto shape = static_cast<std::int64_t>(input.size());
    const ciranda_tensor tensor{input.data(), output.data(), &shape, 1, DataTypeOf<T>::value, nullptr, 0};
    ciranda_request request = reduction_for(CIRANDA_ALLREDUCE, options, tensor);
    request.weight = options.weight ? &*options.weight : nullptr;
    request.flags = options.deferrable ? CIRANDA_REQUEST_DEFERRABLE : 0;
    return submit(request);
  }

  // In place.
  template <typename T, std::size_t Extent>
  [[nodiscard]] Operation allreduce_async(std::span<T, Extent> values, const ReduceOptions& options = {}) {
    return allreduce_async<T>(std::span<const T>(values), std::span<T>(values), options);
  }

  template <typename T, std::size_t Extent>
  void allreduce(std::span<T, Extent> values, const ReduceOptions& options = {}) {
    allreduce_async(values, options).wait();
  }

  // In place: on the root it is read, elsewhere written.
  template <typename T, std::size_t Extent>
  [[nodiscard]] Operation broadcast_async(std::span<T, Extent> values, const BroadcastOptions& options = {}) {
    const auto shape = static_cast<std::int64_t>(values.size());
    const ciranda_tensor tensor{values.data(), values.data(), &shape, 1, DataTypeOf<T>::value, nullptr, 0};
    ciranda_request request = request_for(CIRANDA_BROADCAST, options.name, tensor);
    request.root = options.root;
    return submit(request);
  }

  template <typename T, std::size_t Extent>
  void broadcast(std::span<T, Extent> values, const BroadcastOptions& options = {}) {
    broadcast_async(values, options).wait();
  }

  // --- with results that the library allocates: give the operation to Gathered<T>.
  // REQUIRES of all: values.size() is a multiple of the row's number of elements.

  template <typename T>
  [[nodiscard]] Operation allgather_async(std::span<const T> values, const GatherOptions& options = {}) {
    const Rows rows = rows_of(values.size(), options.row_shape);
    const ciranda_tensor tensor = rows.tensor(values);
    return submit(request_for(CIRANDA_ALLGATHER, options.name, tensor));
  }

  template <typename T, std::size_t Extent>
  Gathered<std::remove_const_t<T>> allgather(std::span<T, Extent> values, const GatherOptions& options = {}) {
    using Value = std::remove_const_t<T>;
    return Gathered<Value>(allgather_async<Value>(std::span<const Value>(values), options));
  }

  // This rank's part of the rows of an allreduce.
  template <typename T>
  [[nodiscard]] Operation reducescatter_async(std::span<const T> values, const ReducescatterOptions& options = {}) {
    const Rows rows = rows_of(values.size(), options.row_shape);
    const ciranda_tensor tensor = rows.tensor(values);
    return submit(reduction_for(CIRANDA_REDUCESCATTER, options, tensor));
  }

  template <typename T, std::size_t Extent>
  Gathered<std::remove_const_t<T>> reducescatter(std::span<T, Extent> values,
                                                 const ReducescatterOptions& options = {}) {
    using Value = std::remove_const_t<T>;
    return Gathered<Value>(reducescatter_async<Value>(std::span<const Value>(values), options));
  }

  // Other rows to each rank. Gathered::received() says how many came from whom.
  template <typename T>
  [[nodiscard]] Operation alltoall_async(std::span<const T> values, const AlltoallOptions& options = {}) {
    const Rows rows = rows_of(values.size(), options.row_shape);
    const ciranda_tensor tensor = rows.tensor(values, options.splits);
    return submit(request_for(CIRANDA_ALLTOALL, options.name, tensor));
  }

  template <typename T, std::size_t Extent>
  Gathered<std::remove_const_t<T>> alltoall(std::span<T, Extent> values, const AlltoallOptions& options = {}) {
    using Value = std::remove_const_t<T>;
    return Gathered<Value>(alltoall_async<Value>(std::span<const Value>(values), options));
  }

  // An allgather for the root alone.
  template <typename T>
  [[nodiscard]] Operation gather_async(std::span<const T> values, const RootedGatherOptions& options = {}) {
    const Rows rows = rows_of(values.size(), options.row_shape);
    const ciranda_tensor tensor = rows.tensor(values);
    ciranda_request request = request_for(CIRANDA_GATHER, options.name, tensor);
    request.root = options.root;
    return submit(request);
  }

  template <typename T, std::size_t Extent>
  Gathered<std::remove_const_t<T>> gather(std::span<T, Extent> values, const RootedGatherOptions& options = {}) {
    using Value = std::remove_const_t<T>;
    return Gathered<Value>(gather_async<Value>(std::span<const Value>(values), options));
  }

  // The root's rows, shared out. The others' values are not looked at and may be none.
  template <typename T>
  [[nodiscard]] Operation scatter_async(std::span<const T> values, const ScatterOptions& options = {}) {
    const Rows rows = rows_of(values.size(), options.row_shape);
    const ciranda_tensor tensor = rows.tensor(values, options.splits);
    ciranda_request request = request_for(CIRANDA_SCATTER, options.name, tensor);
    request.root = options.root;
    return submit(request);
  }

  template <typename T, std::size_t Extent>
  Gathered<std::remove_const_t<T>> scatter(std::span<T, Extent> values, const ScatterOptions& options = {}) {
    using Value = std::remove_const_t<T>;
    return Gathered<Value>(scatter_async<Value>(std::span<const Value>(values), options));
  }

  // In place: the root's values become the result, the others' stay as they are.
  template <typename T, std::size_t Extent>
  [[nodiscard]] Operation reduce_async(std::span<T, Extent> values, const RootedReduceOptions& options = {}) {
    const auto shape = static_cast<std::int64_t>(values.size());
    const ciranda_tensor tensor{values.data(), values.data(), &shape, 1, DataTypeOf<T>::value, nullptr, 0};
    ciranda_request request = reduction_for(CIRANDA_REDUCE, options, tensor);
    request.root = options.root;
    return submit(request);
  }

  template <typename T, std::size_t Extent>
  void reduce(std::span<T, Extent> values, const RootedReduceOptions& options = {}) {
    reduce_async(values, options).wait();
  }

  void barrier() {
    ciranda_request request = CIRANDA_REQUEST_INIT;
    request.collective = CIRANDA_BARRIER;
    submit(request).wait();
  }

  // Anything else: a request of your own, as ciranda.h describes it.
  [[nodiscard]] Operation submit(const ciranda_request& request) {
    ciranda_operation* handle = nullptr;
    const ciranda_status status = ciranda_submit(context_.get(), &request, &handle);
    if (status != CIRANDA_OK) throw Error(status, "ciranda_submit refused the request");
    return Operation(handle);
  }

  ciranda_context* get() const noexcept { return context_.get(); }

 private:
  struct Shutdown {
    void operator()(ciranda_context* context) const noexcept { ciranda_shutdown(context); }
  };

  static void require(bool condition, const char* otherwise) {
    if (!condition) throw Error(CIRANDA_INVALID_ARGUMENT, otherwise);
  }

  // The shape of rows that lie one after the other.
  struct Rows {
    std::vector<std::int64_t> shape;

    template <typename T>
    ciranda_tensor tensor(std::span<const T> values, const std::vector<std::int64_t>& splits = {}) const noexcept {
      return {values.data(),        nullptr,
              shape.data(),         static_cast<std::int32_t>(shape.size()),
              DataTypeOf<T>::value, splits.empty() ? nullptr : splits.data(),
              splits.size()};
    }
  };

  static Rows rows_of(std::size_t n_values, const std::vector<std::int64_t>& row_shape) {
    std::int64_t row_count = 1;
    for (const std::int64_t extent : row_shape) row_count *= extent;
    const auto count = static_cast<std::int64_t>(n_values);
    require(row_count > 0 && count % row_count == 0, "the values do not fill whole rows");
    Rows rows{{count / row_count}};
    rows.shape.insert(rows.shape.end(), row_shape.begin(), row_shape.end());
    return rows;
  }

  template <typename Options>
  static ciranda_request reduction_for(ciranda_collective collective, const Options& options,
                                       const ciranda_tensor& tensor) noexcept {
    ciranda_request request = request_for(collective, options.name, tensor);
    request.op = static_cast<ciranda_reduce_op>(options.op);
    request.prescale = options.prescale;
    request.postscale = options.postscale;
    return request;
  }

  static ciranda_request request_for(ciranda_collective collective, const std::string& name,
                                     const ciranda_tensor& tensor) noexcept {
    ciranda_request request = CIRANDA_REQUEST_INIT;
    request.collective = collective;
    request.name = name.empty() ? nullptr : name.c_str();
    request.tensors = &tensor;
    request.tensors_count = 1;
    return request;
  }

  std::unique_ptr<ciranda_context, Shutdown> context_;
};

}  // namespace v1
}  // namespace ciranda
