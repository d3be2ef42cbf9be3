// Call: one request of a framework, from its submission until its outcome has been reported to the framework.
//
//   struct Allreduce {                                   // the framework's tensors, and its completion callback
//     TF_Tensor* tensor;
//     Done done;
//     void end(const native::Outcome& outcome);          // called exactly once
//   };
//   native::submit(std::make_unique<Allreduce>(...), request);
//
// Ownership: the held object lives until end() has returned, and is then destroyed; until then the memory of the
// request's tensors must be valid, which holding the tensors ensures.
// Threads: any thread may call submit(). end() runs on a thread of the engine or inside submit(), possibly before
// submit() returns. end() may do what ciranda_request.callback allows.
// Failure: every failure is passed to end(), even that there is no world. An exception of end() is not propagated: it
// is reported on standard error and counted, since the framework can no longer be told the outcome.
//
// Called by plugins of JAX, TensorFlow and MXNet: bindings/jax/, which alone calls submit_and_look(),
// bindings/tensorflow/ and bindings/mxnet/.
#pragma once

#include <ciranda/table.h>

#include <atomic>
#include <ciranda/native/context.hpp>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <utility>

namespace ciranda::native {
inline namespace CIRANDA_NATIVE_VERSION {

// How a call ended. Valid during end().
struct Outcome {
  ciranda_status status;
  const char* message;                 // "" if it succeeded
  const ciranda_operation* operation;  // null if the engine did not accept the request
};

// Keeps an operation beyond end(): while this object lives, a framework's tensors may use the operation's outputs.
class Kept {
 public:
  Kept() = default;
  // get() is null if there is no operation, or no memory for the reference.
  explicit Kept(const Outcome& outcome) : operation_(ciranda_operation_retain(outcome.operation)) {}

  const ciranda_operation* get() const noexcept { return operation_.get(); }

  // The output at `index`; all zero if there is none.
  ciranda_output output(std::size_t index) const {
    ciranda_output found{};
    if (operation_) (void)ciranda_operation_output(operation_.get(), index, &found);
    return found;
  }

 private:
  Operation operation_;
};

template <typename Held>
concept Ends = requires(Held& held, const Outcome& outcome) {
  { held.end(outcome) } -> std::same_as<void>;
};

// Counters of this shared library, for tests.
struct Counts {
  std::atomic<std::int64_t> live{0};    // calls whose tensors are still held
  std::atomic<std::int64_t> thrown{0};  // calls whose end() has thrown
};
inline Counts counts;

inline std::int64_t live_calls() { return counts.live.load(); }

template <Ends Held>
class Call {
 public:
  explicit Call(std::unique_ptr<Held> held) : held_(std::move(held)) { ++counts.live; }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() {
    held_.reset();
    --counts.live;
  }

  void end(const Outcome& outcome) noexcept {
    try {
      held_->end(outcome);
    } catch (const std::exception& error) {
      tell(error.what());
    } catch (...) {
      tell("no std::exception");
    }
  }

  // The ciranda_callback. It owns the call once the engine has accepted the request.
  static void done(const ciranda_operation* operation, void* user_data) noexcept {
    const std::unique_ptr<Call> call(static_cast<Call*>(user_data));
    call->end({ciranda_operation_status(operation), ciranda_operation_message(operation), operation});
  }

 private:
  static void tell(const char* what) noexcept {
    ++counts.thrown;
    std::fprintf(stderr, "ciranda: a framework's completion function threw an exception: %s\n", what);
  }

  std::unique_ptr<Held> held_;
};

// Submits `request` to `context`, which may have been shut down. Sets the request's callback and user_data. The request
// may point into the held object.
template <Ends Held>
void submit(ciranda_context* context, std::unique_ptr<Held> held, ciranda_request request) {
  auto call = std::make_unique<Call<Held>>(std::move(held));
  if (context == nullptr) {
    call->end({CIRANDA_INVALID_ARGUMENT, kNotInitialized, nullptr});
    return;
  }
  request.callback = &Call<Held>::done;
  request.user_data = call.get();
  const ciranda_status status = ciranda_submit(context, &request, nullptr);
  if (status == CIRANDA_OK) {
    (void)call.release();  // done() owns it, or has destroyed it
  } else {
    call->end({status, failure_of(nullptr), nullptr});
  }
}

// The same, but this thread first waits for the end, for `seconds` at most. If the call ends by then, no thread has to
// be woken, and end() has run when this function returns. For a single call whose framework would wait for it anyway.
template <Ends Held>
void submit_and_look(ciranda_context* context, std::unique_ptr<Held> held, ciranda_request request, double seconds) {
  auto call = std::make_unique<Call<Held>>(std::move(held));
  request.flags |= CIRANDA_REQUEST_AWAITED;
  ciranda_operation* operation = nullptr;
  ciranda_status status = ciranda_submit(context, &request, &operation);
  if (operation == nullptr) {
    call->end({status, failure_of(nullptr), nullptr});
    return;
  }
  (void)ciranda_wait_for(operation, seconds);
  status = ciranda_operation_status(operation);
  if (status != CIRANDA_PENDING) {
    call->end({status, ciranda_operation_message(operation), operation});
  } else {
    Call<Held>* given = call.release();
    if (ciranda_operation_call_back(operation, &Call<Held>::done, given) != CIRANDA_OK) {
      (void)ciranda_wait(operation);  // out of memory for a callback; the held object must outlive the operation
      Call<Held>::done(operation, given);
    }
  }
  ciranda_operation_release(operation);
}

// submit() in the world that the process is in.
template <Ends Held>
void submit(std::unique_ptr<Held> held, const ciranda_request& request) {
  const Context context;
  submit(context.get(), std::move(held), request);
}

}  // namespace CIRANDA_NATIVE_VERSION
}  // namespace ciranda::native
