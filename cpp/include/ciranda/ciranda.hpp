// ciranda.hpp: the header-only C++20 interface to ciranda.h: RAII contexts and operations, spans for tensors,
// exceptions for errors.
//
//   ciranda::Context world;                                  // joins; the environment says which rank this is
//   std::vector<float> gradient(1024, 1.0f);
//   world.allreduce(std::span(gradient), {.name = "gradient", .op = ciranda::ReduceOp::kAverage});
//
// Threads: a Context may be used from any thread, an Operation by one thread at a time. Neither may be destroyed while
// another thread is using it.
// Ownership: spans are the caller's, and must stay valid and their outputs unread until the operation is done. An
// Operation that is destroyed while pending waits until it is done, so that memory cannot go away under it.
// Failure: constructors and waits throw ciranda::Error; destructors and moves do not throw.
//
// Called by programs in C++.
#pragma once

#include <ciranda/ciranda.h>

#include <algorithm>
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

// Code that calls through a table (ciranda/table.h) has a namespace of its own, so that one program can contain both.
#ifdef CIRANDA_USE_TABLE
#define CIRANDA_FACE_VERSION v1_by_table
#else
#define CIRANDA_FACE_VERSION v1
#endif

namespace ciranda {
inline namespace CIRANDA_FACE_VERSION {

// The kinds of errors; the constants in ciranda.h say what the caller can do about each.
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

// The shape of contiguous rows of `row_shape`.
inline std::vector<std::int64_t> shape_of_rows(std::size_t n_values, const std::vector<std::int64_t>& row_shape) {
  std::int64_t row_count = 1;
  for (const std::int64_t extent : row_shape) row_count *= extent;
  const auto count = static_cast<std::int64_t>(n_values);
  if (row_count <= 0 || count % row_count != 0) {
    throw Error(CIRANDA_INVALID_ARGUMENT, "the values do not fill whole rows");
  }
  std::vector<std::int64_t> shape{count / row_count};
  shape.insert(shape.end(), row_shape.begin(), row_shape.end());
  return shape;
}

// The collectives that accept a Group.
enum class Collective : std::int32_t {
  kAllreduce = CIRANDA_ALLREDUCE,
  kAllgather = CIRANDA_ALLGATHER,
  kBroadcast = CIRANDA_BROADCAST,
  kReducescatter = CIRANDA_REDUCESCATTER,
  kAlltoall = CIRANDA_ALLTOALL,
  kReduce = CIRANDA_REDUCE,
  kGather = CIRANDA_GATHER,
  kScatter = CIRANDA_SCATTER,
  kScan = CIRANDA_SCAN,
};

// Kept by a caller for a name that it calls repeatedly: see ciranda_request.handle.
class Handle {
 public:
  Handle() : handle_(ciranda_handle_new()) {}
  ciranda_handle* get() const noexcept { return handle_.get(); }

 private:
  struct Release {
    void operator()(ciranda_handle* handle) const noexcept { ciranda_handle_release(handle); }
  };
  std::unique_ptr<ciranda_handle, Release> handle_;
};

// The ranks of a collective (a process set, 0 for all ranks), and the lane, which does not wait for other lanes. With
// needs_all, which must be the same on all ranks, the call fails if a rank of the set has joined. A handle saves the
// look-up of the name.
struct Scope {
  std::uint32_t process_set = 0;
  std::uint32_t lane = 0;
  bool needs_all = false;
  const Handle* handle = nullptr;
};

// Names identify a tensor across ranks and steps; calls with an empty name are matched by their order. Roots are ranks
// of the world, even in a process set.
struct ReduceOptions {
  std::string name = {};
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  std::optional<double> weight = {};  // of this rank, in a weighted average
  bool divide_by_all = false;         // an average counts ranks that have joined too
  bool deferrable = false;            // may be held back to be fused with others; wait for it
  std::int32_t priority = 0;          // ready calls start in descending order
  Scope at = {};
};

struct ScanOptions {
  std::string name = {};
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  bool divide_by_all = false;  // as in ReduceOptions, of the ranks up to this one
  Scope at = {};
};

struct BroadcastOptions {
  std::string name = {};
  std::int32_t root = 0;
  Scope at = {};
};

// row_shape is the shape of one element along dimension 0: {3} for an input of n x 3, empty for a vector.
struct GatherOptions {
  std::string name = {};
  std::vector<std::int64_t> row_shape = {};
  Scope at = {};
};

struct ReducescatterOptions {
  std::string name = {};
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  bool divide_by_all = false;  // as in ReduceOptions
  std::vector<std::int64_t> row_shape = {};
  Scope at = {};
};

struct AlltoallOptions {
  std::string name = {};
  std::vector<std::int64_t> splits = {};  // rows for each rank; empty: equal parts
  std::vector<std::int64_t> row_shape = {};
  Scope at = {};
};

struct RootedReduceOptions {
  std::string name = {};
  std::int32_t root = 0;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  bool divide_by_all = false;  // as in ReduceOptions
  Scope at = {};
};

struct RootedGatherOptions {
  std::string name = {};
  std::int32_t root = 0;
  std::vector<std::int64_t> row_shape = {};
  Scope at = {};
};

struct ScatterOptions {
  std::string name = {};
  std::int32_t root = 0;
  std::vector<std::int64_t> splits = {};  // the root's: rows for each rank; empty: equal parts, the rest in front
  std::vector<std::int64_t> row_shape = {};
  Scope at = {};
};

struct GroupOptions {
  std::string name = {};
  std::int32_t root = -1;  // of those that have one
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  std::optional<double> weight = {};
  bool divide_by_all = false;  // as in ReduceOptions
  bool deferrable = false;
  std::int32_t priority = 0;  // as in ReduceOptions
  Scope at = {};
};

// The tensors of one grouped request, of any types: all complete or all fail.
class Group {
 public:
  // In place if the result has the size of the contribution (allreduce, broadcast, reduce); otherwise this rank's
  // contribution. `row_shape` and `splits` as in the options of the collective.
  template <typename T, std::size_t Extent>
  Group& add(std::span<T, Extent> values, const std::vector<std::int64_t>& row_shape = {},
             std::vector<std::int64_t> splits = {}) {
    Member member;
    member.input = values.data();
    if constexpr (!std::is_const_v<T>) member.output = values.data();
    member.dtype = DataTypeOf<std::remove_const_t<T>>::value;
    member.shape = shape_of_rows(values.size(), row_shape);
    member.splits = std::move(splits);
    members_.push_back(std::move(member));
    return *this;
  }

  std::size_t size() const noexcept { return members_.size(); }

 private:
  friend class Context;

  struct Member {
    const void* input = nullptr;
    void* output = nullptr;
    ciranda_dtype dtype = CIRANDA_FLOAT32;
    std::vector<std::int64_t> shape;
    std::vector<std::int64_t> splits;
  };

  std::vector<ciranda_tensor> tensors(bool in_place) const {
    std::vector<ciranda_tensor> tensors;
    for (const Member& member : members_) {
      if (in_place && member.output == nullptr && member.input != nullptr) {
        throw Error(CIRANDA_INVALID_ARGUMENT, "this collective works in place: add spans that can be written to");
      }
      tensors.push_back({member.input, in_place ? member.output : nullptr, member.shape.data(),
                         static_cast<std::int32_t>(member.shape.size()), member.dtype,
                         member.splits.empty() ? nullptr : member.splits.data(), member.splits.size(), 0, 0, nullptr});
    }
    return tensors;
  }

  std::vector<Member> members_;
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

  // As wait(), for this time at most. Returns whether it is done.
  bool wait_for(double seconds) const {
    const ciranda_status status = ciranda_wait_for(handle_.get(), seconds);
    if (status == CIRANDA_TIMEOUT && ciranda_operation_status(handle_.get()) == CIRANDA_PENDING) return false;
    wait();
    return true;
  }

  ciranda_operation* get() const noexcept { return handle_.get(); }

 private:
  struct Release {
    void operator()(ciranda_operation* handle) const noexcept { ciranda_operation_release(handle); }
  };
  std::unique_ptr<ciranda_operation, Release> handle_;
};

// Results that the library has allocated: of an allgather, reducescatter, alltoall, gather or scatter of a Group. The
// values live as long as this object.
class Results {
 public:
  // Waits for the operation. Has no values if the operation has no output, as a gather on ranks other than the root.
  explicit Results(Operation operation) : operation_(std::move(operation)) { operation_.wait(); }

  // The result of one tensor, by its index in the group. REQUIRES: the tensor's type is T.
  template <typename T>
  std::span<const T> values(std::size_t index) const noexcept {
    const ciranda_output output = at(index);
    return {static_cast<const T*>(output.data), output.n_bytes / sizeof(T)};
  }
  std::span<const std::int64_t> shape(std::size_t index) const noexcept {
    const ciranda_output output = at(index);
    return {output.shape, static_cast<std::size_t>(output.ndim)};
  }
  // The number of rows from each rank. REQUIRES: the operation is an alltoall.
  std::span<const std::int64_t> received(std::size_t index) const noexcept {
    return values<std::int64_t>(count() / 2 + index);
  }
  // The number of outputs; an alltoall has two for each tensor.
  std::size_t count() const noexcept { return ciranda_operation_outputs_count(operation_.get()); }

 private:
  ciranda_output at(std::size_t index) const noexcept {
    ciranda_output output{};
    ciranda_operation_output(operation_.get(), index, &output);
    return output;
  }

  Operation operation_;
};

// The same for an operation on one tensor.
template <typename T>
class Gathered {
 public:
  // Waits for the operation. REQUIRES: it has one tensor, of type T.
  explicit Gathered(Operation operation) : results_(std::move(operation)) {}

  std::span<const T> values() const noexcept { return results_.values<T>(0); }
  std::span<const std::int64_t> shape() const noexcept { return results_.shape(0); }
  // The number of rows from each rank; empty unless the operation is an alltoall.
  std::span<const std::int64_t> received() const noexcept { return results_.values<std::int64_t>(1); }

 private:
  Results results_;
};

// The world of ranks that this process belongs to. Joining blocks until all ranks have joined; the destructor leaves.
class Context {
 public:
  using Settings = std::vector<std::pair<std::string, std::string>>;

  Context() : Context(Settings{}) {}

  // Settings override the environment: {{"CIRANDA_STALL_WARNING_SECONDS", "5"}}.
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

  // The world that this process is in, even if other code has joined it; nullopt if it is in none. The destructor of
  // the returned Context does not leave the world.
  static std::optional<Context> current() {
    ciranda_context* const found = ciranda_current();
    if (found == nullptr) return std::nullopt;
    return Context(found);
  }
  // True until any holder shuts the context down; after that, requests fail with kAborted.
  bool is_open() const noexcept { return ciranda_context_is_open(context_.get()) != 0; }

  int rank() const noexcept { return ciranda_rank(context_.get()); }
  int size() const noexcept { return ciranda_size(context_.get()); }
  int local_rank() const noexcept { return ciranda_local_rank(context_.get()); }
  int local_size() const noexcept { return ciranda_local_size(context_.get()); }
  int cross_rank() const noexcept { return ciranda_cross_rank(context_.get()); }
  int cross_size() const noexcept { return ciranda_cross_size(context_.get()); }

  // REQUIRES: input and output have the same length, and are equal or do not overlap.
  template <typename T>
  [[nodiscard]] Operation allreduce_async(std::span<const T> input, std::span<T> output,
                                          const ReduceOptions& options = {}) {
    return with_allreduce(input, output, options, [this](const ciranda_request& request) { return submit(request); });
  }

  // In place.
  template <typename T, std::size_t Extent>
  [[nodiscard]] Operation allreduce_async(std::span<T, Extent> values, const ReduceOptions& options = {}) {
    return allreduce_async(std::span<const T>(values), std::span<T>(values), options);
  }

  template <typename T, std::size_t Extent>
  void allreduce(std::span<T, Extent> values, const ReduceOptions& options = {}) {
    with_allreduce(std::span<const T>(values), std::span<T>(values), options,
                   [this](const ciranda_request& request) { run(request); });
  }

  // In place: an allreduce among the ranks up to this one.
  template <typename T, std::size_t Extent>
  [[nodiscard]] Operation scan_async(std::span<T, Extent> values, const ScanOptions& options = {}) {
    return with_scan(std::span<T>(values), options, [this](const ciranda_request& request) { return submit(request); });
  }

  template <typename T, std::size_t Extent>
  void scan(std::span<T, Extent> values, const ScanOptions& options = {}) {
    with_scan(std::span<T>(values), options, [this](const ciranda_request& request) { run(request); });
  }

  // In place: the values are read on the root, and written on all other ranks.
  template <typename T, std::size_t Extent>
  [[nodiscard]] Operation broadcast_async(std::span<T, Extent> values, const BroadcastOptions& options = {}) {
    return with_broadcast(std::span<T>(values), options,
                          [this](const ciranda_request& request) { return submit(request); });
  }

  template <typename T, std::size_t Extent>
  void broadcast(std::span<T, Extent> values, const BroadcastOptions& options = {}) {
    with_broadcast(std::span<T>(values), options, [this](const ciranda_request& request) { run(request); });
  }

  // --- into the caller's memory. Calls that are repeated are the fastest.
  // REQUIRES of all: values.size() is a multiple of the row's number of elements; the result does not overlap the
  // values.

  // The result is as long as the values of all ranks together.
  template <typename T, std::size_t Extent, std::size_t ResultExtent>
  void allgather(std::span<T, Extent> values, std::span<std::remove_const_t<T>, ResultExtent> result,
                 const GatherOptions& options = {}) {
    using Value = std::remove_const_t<T>;
    const Rows rows = rows_of(values.size(), options.row_shape);
    const ciranda_tensor tensor = rows.tensor(std::span<const Value>(values), {}, result.data());
    ciranda_request request = request_for(CIRANDA_ALLGATHER, options, &tensor);
    if (result.size() == values.size() * n_ranks_at(options.at)) request.flags |= CIRANDA_REQUEST_HAS_ROOM;
    Operation operation = perform(request);
    if (operation.get() == nullptr) return;  // the result is complete already
    const Gathered<Value> gathered(std::move(operation));
    require(gathered.values().size() == result.size(), "allgather: the result is not as long as the ranks' values");
    if (gathered.values().data() != result.data())
      std::copy(gathered.values().begin(), gathered.values().end(), result.begin());
  }

  // The result is as long as this rank's part of the rows.
  template <typename T, std::size_t Extent, std::size_t ResultExtent>
  void reducescatter(std::span<T, Extent> values, std::span<std::remove_const_t<T>, ResultExtent> result,
                     const ReducescatterOptions& options = {}) {
    const Rows rows = rows_of(values.size(), options.row_shape);
    const std::size_t n_rows = rows.n_rows();
    const std::size_t n_values = n_rows == 0 ? 0 : n_own_of(n_rows, options.at) * (values.size() / n_rows);
    require(result.size() == n_values, "reducescatter: the result is not as long as this rank's part of the values");
    const ciranda_tensor tensor = rows.tensor(std::span<const std::remove_const_t<T>>(values), {}, result.data());
    run(reduction_for(CIRANDA_REDUCESCATTER, options, &tensor));
  }

  // The result is as long as the values, and may be the same memory. All ranks call this function, and contribute the
  // same number of values, in equal parts.
  template <typename T, std::size_t Extent, std::size_t ResultExtent>
  void alltoall(std::span<T, Extent> values, std::span<std::remove_const_t<T>, ResultExtent> result,
                const AlltoallOptions& options = {}) {
    require(result.size() == values.size(), "alltoall: the result is not as long as the values");
    const Rows rows = rows_of(values.size(), options.row_shape);
    const std::span<const std::remove_const_t<T>> input(values);
    const ciranda_tensor tensor = rows.tensor(input, options.splits, result.data());
    ciranda_request request = request_for(CIRANDA_ALLTOALL, options, &tensor);
    request.flags |= CIRANDA_REQUEST_HAS_ROOM;
    run(request);
  }

  // --- with results that the library allocates: pass the operation to Gathered<T>.
  // REQUIRES of all: values.size() is a multiple of the row's number of elements.

  template <typename T>
  [[nodiscard]] Operation allgather_async(std::span<const T> values, const GatherOptions& options = {}) {
    return with_allgather(values, options, [this](const ciranda_request& request) { return submit(request); });
  }

  template <typename T, std::size_t Extent>
  Gathered<std::remove_const_t<T>> allgather(std::span<T, Extent> values, const GatherOptions& options = {}) {
    using Value = std::remove_const_t<T>;
    return Gathered<Value>(with_allgather(std::span<const Value>(values), options,
                                          [this](const ciranda_request& request) { return perform(request); }));
  }

  // The result is this rank's part of the rows of an allreduce.
  template <typename T>
  [[nodiscard]] Operation reducescatter_async(std::span<const T> values, const ReducescatterOptions& options = {}) {
    return with_reducescatter(values, options, [this](const ciranda_request& request) { return submit(request); });
  }

  template <typename T, std::size_t Extent>
  Gathered<std::remove_const_t<T>> reducescatter(std::span<T, Extent> values,
                                                 const ReducescatterOptions& options = {}) {
    using Value = std::remove_const_t<T>;
    return Gathered<Value>(with_reducescatter(std::span<const Value>(values), options,
                                              [this](const ciranda_request& request) { return perform(request); }));
  }

  // Sends different rows to each rank. Gathered::received() has the number of rows from each rank.
  template <typename T>
  [[nodiscard]] Operation alltoall_async(std::span<const T> values, const AlltoallOptions& options = {}) {
    return with_alltoall(values, options, [this](const ciranda_request& request) { return submit(request); });
  }

  template <typename T, std::size_t Extent>
  Gathered<std::remove_const_t<T>> alltoall(std::span<T, Extent> values, const AlltoallOptions& options = {}) {
    using Value = std::remove_const_t<T>;
    return Gathered<Value>(with_alltoall(std::span<const Value>(values), options,
                                         [this](const ciranda_request& request) { return perform(request); }));
  }

  // An allgather whose result only the root gets.
  template <typename T>
  [[nodiscard]] Operation gather_async(std::span<const T> values, const RootedGatherOptions& options = {}) {
    const Rows rows = rows_of(values.size(), options.row_shape);
    const ciranda_tensor tensor = rows.tensor(values);
    ciranda_request request = request_for(CIRANDA_GATHER, options, &tensor);
    request.root = options.root;
    return submit(request);
  }

  template <typename T, std::size_t Extent>
  Gathered<std::remove_const_t<T>> gather(std::span<T, Extent> values, const RootedGatherOptions& options = {}) {
    using Value = std::remove_const_t<T>;
    return Gathered<Value>(gather_async<Value>(std::span<const Value>(values), options));
  }

  // Distributes the root's rows. The others' values are ignored and may be empty.
  template <typename T>
  [[nodiscard]] Operation scatter_async(std::span<const T> values, const ScatterOptions& options = {}) {
    const Rows rows = rows_of(values.size(), options.row_shape);
    const ciranda_tensor tensor = rows.tensor(values, options.splits);
    ciranda_request request = request_for(CIRANDA_SCATTER, options, &tensor);
    request.root = options.root;
    return submit(request);
  }

  template <typename T, std::size_t Extent>
  Gathered<std::remove_const_t<T>> scatter(std::span<T, Extent> values, const ScatterOptions& options = {}) {
    using Value = std::remove_const_t<T>;
    return Gathered<Value>(scatter_async<Value>(std::span<const Value>(values), options));
  }

  // In place: the root's values become the result, the others' are unchanged.
  template <typename T, std::size_t Extent>
  [[nodiscard]] Operation reduce_async(std::span<T, Extent> values, const RootedReduceOptions& options = {}) {
    const auto shape = static_cast<std::int64_t>(values.size());
    const ciranda_tensor tensor{values.data(), values.data(), &shape, 1, DataTypeOf<T>::value, nullptr, 0, 0, 0,
                                nullptr};
    ciranda_request request = reduction_for(CIRANDA_REDUCE, options, &tensor);
    request.root = options.root;
    return submit(request);
  }

  template <typename T, std::size_t Extent>
  void reduce(std::span<T, Extent> values, const RootedReduceOptions& options = {}) {
    reduce_async(values, options).wait();
  }

  // --- several tensors at once

  // If the library allocates the results, pass the operation to Results.
  [[nodiscard]] Operation group_async(Collective collective, const Group& group, const GroupOptions& options = {}) {
    const bool in_place = collective == Collective::kAllreduce || collective == Collective::kBroadcast ||
                          collective == Collective::kReduce || collective == Collective::kScan;
    const std::vector<ciranda_tensor> tensors = group.tensors(in_place);
    ciranda_request request =
        reduction_for(static_cast<ciranda_collective>(collective), options, tensors.data(), tensors.size());
    request.root = options.root;
    request.weight = options.weight ? &*options.weight : nullptr;
    request.priority = options.priority;
    if (options.deferrable) request.flags |= CIRANDA_REQUEST_DEFERRABLE;
    return submit(request);
  }

  Results group(Collective collective, const Group& group, const GroupOptions& options = {}) {
    return Results(group_async(collective, group, options));
  }

  // --- between two ranks: one sends, the other receives. Several transfers between the same two ranks need names, or
  // the same order on both ranks.

  template <typename T, std::size_t Extent>
  [[nodiscard]] Operation send_async(std::span<T, Extent> values, std::int32_t to, const std::string& name = {}) {
    // The memory is only read, since the sender is the root of the pair.
    auto* memory = const_cast<std::remove_const_t<T>*>(values.data());
    return transfer(std::span(memory, values.size()), to, rank(), name);
  }

  template <typename T, std::size_t Extent>
  void send(std::span<T, Extent> values, std::int32_t to, const std::string& name = {}) {
    send_async(values, to, name).wait();
  }

  template <typename T, std::size_t Extent>
  [[nodiscard]] Operation receive_async(std::span<T, Extent> values, std::int32_t from, const std::string& name = {}) {
    return transfer(std::span<T>(values), from, from, name);
  }

  template <typename T, std::size_t Extent>
  void receive(std::span<T, Extent> values, std::int32_t from, const std::string& name = {}) {
    receive_async(values, from, name).wait();
  }

  // --- without tensors

  [[nodiscard]] Operation barrier_async(const Scope& at = {}) { return submit(request_at(CIRANDA_BARRIER, at)); }
  void barrier(const Scope& at = {}) { run(request_at(CIRANDA_BARRIER, at)); }

  // This rank contributes nothing until all ranks of the set have joined: see CIRANDA_JOIN. Pass the operation to
  // last_to_join().
  [[nodiscard]] Operation join_async(std::uint32_t process_set = 0) {
    return submit(request_at(CIRANDA_JOIN, {process_set, 0}));
  }
  static int last_to_join(const Operation& operation) { return static_cast<int>(value_of(operation)); }
  int join(std::uint32_t process_set = 0) { return last_to_join(join_async(process_set)); }

  // --- process sets

  // Returns the number of the new set. All ranks of the world call this with the same ranks, ascending.
  std::uint32_t add_process_set(const std::vector<std::int64_t>& ranks) {
    return static_cast<std::uint32_t>(value_of(change_sets(CIRANDA_ADD_PROCESS_SET, ranks)));
  }
  // All ranks of the world call this; pending calls of the set fail. For a formed set, each of its ranks calls this by
  // itself, after its last call in the set.
  void remove_process_set(std::uint32_t process_set) { change_sets(CIRANDA_REMOVE_PROCESS_SET, {process_set}).wait(); }
  // Returns the number of the new set. Only the ranks of the set call this. `ranks`: ascending, including this rank.
  // `nth`: the same on all of them, and not used before by the lowest.
  std::uint32_t form_process_set(const std::vector<std::int32_t>& ranks, std::uint32_t nth) {
    std::uint32_t formed = 0;
    std::string message(4096, '\0');
    const ciranda_status status = ciranda_form_process_set(context_.get(), ranks.data(), ranks.size(), nth, &formed,
                                                           message.data(), message.size());
    if (status != CIRANDA_OK) throw Error(status, message.c_str());
    return formed;
  }
  // The ranks of a process set, ascending; empty if there is no such set.
  std::vector<std::int32_t> ranks_of(std::uint32_t process_set) const {
    std::vector<std::int32_t> ranks(ciranda_process_set_ranks(context_.get(), process_set, nullptr, 0));
    ciranda_process_set_ranks(context_.get(), process_set, ranks.data(), ranks.size());
    return ranks;
  }

  // Any other request, as ciranda.h describes it.
  [[nodiscard]] Operation submit(const ciranda_request& request) {
    ciranda_operation* handle = nullptr;
    const ciranda_status status = ciranda_submit(context_.get(), &request, &handle);
    if (status != CIRANDA_OK) throw Error(status, "ciranda_submit refused the request");
    return Operation(handle);
  }

  ciranda_context* get() const noexcept { return context_.get(); }

 private:
  struct End {
    End() noexcept : leaves(true) {}
    explicit End(bool leaves_world) noexcept : leaves(leaves_world) {}
    bool leaves;
    void operator()(ciranda_context* context) const noexcept {
      leaves ? static_cast<void>(ciranda_shutdown(context)) : ciranda_context_release(context);
    }
  };

  explicit Context(ciranda_context* found) noexcept : context_(found, End{false}) {}

  // Returns when the request is done. Empty if it has neither a value nor a result that the library has allocated.
  Operation perform(const ciranda_request& request) {
    ciranda_operation* handle = nullptr;
    const ciranda_status status = ciranda_run(context_.get(), &request, &handle);
    Operation operation(handle);
    if (handle != nullptr) operation.wait();
    if (status != CIRANDA_OK) throw Error(status, "ciranda_run refused the request");
    return operation;
  }
  // As perform(), without returning a result.
  void run(const ciranda_request& request) { perform(request); }

  template <typename T, typename Perform>
  auto with_allreduce(std::span<const T> input, std::span<T> output, const ReduceOptions& options, Perform perform) {
    require(input.size() == output.size(), "allreduce: input and output differ in length");
    const auto shape = static_cast<std::int64_t>(input.size());
    const ciranda_tensor tensor{input.data(), output.data(), &shape, 1, DataTypeOf<T>::value, nullptr, 0, 0, 0,
                                nullptr};
    ciranda_request request = reduction_for(CIRANDA_ALLREDUCE, options, &tensor);
    request.weight = options.weight ? &*options.weight : nullptr;
    request.priority = options.priority;
    if (options.deferrable) request.flags |= CIRANDA_REQUEST_DEFERRABLE;
    return perform(request);
  }

  template <typename T, typename Perform>
  auto with_scan(std::span<T> values, const ScanOptions& options, Perform perform) {
    const auto shape = static_cast<std::int64_t>(values.size());
    const ciranda_tensor tensor{values.data(), values.data(), &shape, 1, DataTypeOf<T>::value, nullptr, 0, 0, 0,
                                nullptr};
    return perform(reduction_for(CIRANDA_SCAN, options, &tensor));
  }

  template <typename T, typename Perform>
  auto with_broadcast(std::span<T> values, const BroadcastOptions& options, Perform perform) {
    const auto shape = static_cast<std::int64_t>(values.size());
    const ciranda_tensor tensor{values.data(), values.data(), &shape, 1, DataTypeOf<T>::value, nullptr, 0, 0, 0,
                                nullptr};
    ciranda_request request = request_for(CIRANDA_BROADCAST, options, &tensor);
    request.root = options.root;
    return perform(request);
  }

  template <typename T, typename Perform>
  Operation with_allgather(std::span<const T> values, const GatherOptions& options, Perform perform) {
    const Rows rows = rows_of(values.size(), options.row_shape);
    const ciranda_tensor tensor = rows.tensor(values);
    return perform(request_for(CIRANDA_ALLGATHER, options, &tensor));
  }

  template <typename T, typename Perform>
  Operation with_reducescatter(std::span<const T> values, const ReducescatterOptions& options, Perform perform) {
    const Rows rows = rows_of(values.size(), options.row_shape);
    const ciranda_tensor tensor = rows.tensor(values);
    return perform(reduction_for(CIRANDA_REDUCESCATTER, options, &tensor));
  }

  template <typename T, typename Perform>
  Operation with_alltoall(std::span<const T> values, const AlltoallOptions& options, Perform perform) {
    const Rows rows = rows_of(values.size(), options.row_shape);
    const ciranda_tensor tensor = rows.tensor(values, options.splits);
    return perform(request_for(CIRANDA_ALLTOALL, options, &tensor));
  }

  template <typename T>
  Operation transfer(std::span<T> values, std::int32_t peer, std::int32_t sender, const std::string& name) {
    const std::uint32_t pair = ciranda_pair(context_.get(), peer);
    require(pair != 0, "send, receive: there is no such other rank");
    const auto shape = static_cast<std::int64_t>(values.size());
    const ciranda_tensor tensor{values.data(), values.data(), &shape, 1, DataTypeOf<T>::value, nullptr, 0, 0, 0,
                                nullptr};
    const BroadcastOptions options{name, sender, {pair, 0}};
    ciranda_request request = request_for(CIRANDA_TRANSFER, options, &tensor);
    request.root = sender;
    return submit(request);
  }

  Operation change_sets(ciranda_collective change, const std::vector<std::int64_t>& arguments) {
    ciranda_request request = request_at(change, {});
    request.arguments = arguments.data();
    request.arguments_count = arguments.size();
    return submit(request);
  }

  static std::int64_t value_of(const Operation& operation) {
    operation.wait();
    return ciranda_operation_value(operation.get());
  }

  static void require(bool condition, const char* otherwise) {
    if (!condition) throw Error(CIRANDA_INVALID_ARGUMENT, otherwise);
  }

  // The shape of contiguous rows.
  struct Rows {
    std::int64_t length;              // the shape of a vector
    std::vector<std::int64_t> shape;  // the shape of all other tensors

    std::size_t n_rows() const noexcept { return static_cast<std::size_t>(shape.empty() ? length : shape.front()); }

    // REQUIRES: this object outlives the returned tensor.
    template <typename T>
    ciranda_tensor tensor(std::span<const T> values, const std::vector<std::int64_t>& splits = {},
                          T* output = nullptr) const noexcept {
      return {values.data(),
              output,
              shape.empty() ? &length : shape.data(),
              shape.empty() ? 1 : static_cast<std::int32_t>(shape.size()),
              DataTypeOf<T>::value,
              splits.empty() ? nullptr : splits.data(),
              splits.size(),
              0,
              0,
              nullptr};
    }
  };

  static Rows rows_of(std::size_t n_values, const std::vector<std::int64_t>& row_shape) {
    if (row_shape.empty()) return {static_cast<std::int64_t>(n_values), {}};
    return {0, shape_of_rows(n_values, row_shape)};
  }

  std::size_t n_ranks_at(const Scope& scope) const noexcept {
    if (scope.process_set == 0) return static_cast<std::size_t>(size());
    return ciranda_process_set_ranks(context_.get(), scope.process_set, nullptr, 0);
  }

  // The number of rows that this rank gets from a reducescatter.
  std::size_t n_own_of(std::size_t n_rows, const Scope& scope) const {
    const std::size_t n_ranks = n_ranks_at(scope);
    auto self = static_cast<std::size_t>(rank());
    if (scope.process_set != 0) {
      const std::vector<std::int32_t> ranks = ranks_of(scope.process_set);
      self = static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin());
    }
    return n_ranks == 0 ? 0 : n_rows / n_ranks + (self < n_rows % n_ranks ? 1 : 0);
  }

  template <typename Options>
  static ciranda_request reduction_for(ciranda_collective collective, const Options& options,
                                       const ciranda_tensor* tensors, std::size_t n_tensors = 1) noexcept {
    ciranda_request request = request_for(collective, options, tensors, n_tensors);
    request.op = static_cast<ciranda_reduce_op>(options.op);
    request.prescale = options.prescale;
    request.postscale = options.postscale;
    if (options.divide_by_all) request.flags |= CIRANDA_REQUEST_DIVIDE_BY_ALL;
    return request;
  }

  template <typename Options>
  static ciranda_request request_for(ciranda_collective collective, const Options& options,
                                     const ciranda_tensor* tensors, std::size_t n_tensors = 1) noexcept {
    ciranda_request request = request_at(collective, options.at);
    request.name = options.name.empty() ? nullptr : options.name.c_str();
    request.tensors = tensors;
    request.tensors_count = n_tensors;
    return request;
  }

  static ciranda_request request_at(ciranda_collective collective, const Scope& scope) noexcept {
    ciranda_request request = CIRANDA_REQUEST_INIT;
    request.collective = collective;
    request.process_set = scope.process_set;
    request.lane = scope.lane;
    if (scope.needs_all) request.flags |= CIRANDA_REQUEST_NEEDS_ALL;
    if (scope.handle != nullptr) request.handle = scope.handle->get();
    return request;
  }

  std::unique_ptr<ciranda_context, End> context_;
};

// Memory for tensors that the ranks of a host combine in place, without a copy: see ciranda_allocate(). Zeroed.
class SharedMemory {
 public:
  // A collective of all ranks; `n_bytes` may differ between ranks.
  SharedMemory(Context& world, std::size_t n_bytes) : n_bytes_(n_bytes) {
    void* memory = nullptr;
    int is_shared = 0;
    std::string message(4096, '\0');
    const ciranda_status status =
        ciranda_allocate(world.get(), n_bytes, &memory, &is_shared, message.data(), message.size());
    if (status != CIRANDA_OK) throw Error(status, message.c_str());
    memory_.reset(memory);
    is_shared_ = is_shared != 0;
  }

  // The memory as elements of T. REQUIRES: T is trivial.
  template <typename T>
  std::span<T> values() const noexcept {
    return {static_cast<T*>(memory_.get()), n_bytes_ / sizeof(T)};
  }
  // If false, all ranks have private memory.
  bool is_shared() const noexcept { return is_shared_; }

 private:
  struct Free {
    void operator()(void* memory) const noexcept { ciranda_free(memory); }
  };
  std::unique_ptr<void, Free> memory_;
  std::size_t n_bytes_;
  bool is_shared_ = false;
};

}  // namespace CIRANDA_FACE_VERSION
}  // namespace ciranda
