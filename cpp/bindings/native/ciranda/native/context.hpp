// Context: a reference to the current world of this process, held during a call. The caller of a plug-in (a graph, a
// compiled program) may outlive a world: create a Context for each call, and cache neither rank nor size.
// Operation: a reference to an operation.
// Called by call.hpp, bindings/jax/, bindings/mpi/, bindings/mxnet/, bindings/paddle/ and
// bindings/tensorflow/; any thread.
#pragma once

#include <ciranda/table.h>

#include <cstdint>
#include <memory>

// Code that calls through a table has its own namespace, so that one program can contain both.
#ifdef CIRANDA_USE_TABLE
#define CIRANDA_NATIVE_VERSION by_table
#else
#define CIRANDA_NATIVE_VERSION linked
#endif

namespace ciranda::native {
inline namespace CIRANDA_NATIVE_VERSION {

inline constexpr const char* kNotInitialized =
    "Ciranda has not been initialized; call init() first. Under --elastic call collectives in the function that "
    "elastic.run wraps: there is no world before.";

// Null, and false, if the process is in no world. Threads: any, one at a time.
class Context {
 public:
  Context() : context_(ciranda_current()) {}
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { ciranda_context_release(context_); }

  explicit operator bool() const noexcept { return context_ != nullptr; }
  ciranda_context* get() const noexcept { return context_; }

 private:
  ciranda_context* context_;
};

struct Release {
  void operator()(ciranda_operation* operation) const noexcept { ciranda_operation_release(operation); }
};
using Operation = std::unique_ptr<ciranda_operation, Release>;

// The reason of a failed request. `operation` is null if the engine has made none for it.
inline const char* failure_of(const Operation& operation) {
  return operation ? ciranda_operation_message(operation.get()) : "the engine could not take in the request";
}

// Decodes a number of ciranda.process_sets.id_of(): the process set, the lane, and whether the call needs all ranks.
inline void take_process_set(std::uint64_t number, ciranda_request& request) {
  request.process_set = static_cast<std::uint32_t>(number);
  request.lane = static_cast<std::uint32_t>(number >> 32) & 0x7fffffff;
  if ((number >> 63) != 0) request.flags |= CIRANDA_REQUEST_NEEDS_ALL;
}

}  // namespace CIRANDA_NATIVE_VERSION
}  // namespace ciranda::native
