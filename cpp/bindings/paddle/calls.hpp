// Calls: requests of Paddle's operators to the engine of the process. run() is for operators that return a result.
// start() and finish() are the two halves of a call whose result is fetched later, by name.
//
// Threads: any. run() and finish() block, and may run the progress loop meanwhile.
// Ownership: start() keeps objects until finish(), or until the next start() of the same name after the call is done.
// Failure: std::runtime_error with the kind of failure and the engine's message, which Python reads (failures.py).
//
// Called by ops.cc, Labels and tensors.hpp.
#pragma once

#include <ciranda/table.h>

#include <ciranda/native/context.hpp>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace ciranda::paddle_ops {

inline constexpr const char* kBinding = "ciranda.paddle";

// A tensor for a request to the engine; owns the shape.
struct Described {
  const void* input;
  void* output;
  std::vector<std::int64_t> shape;
  ciranda_dtype dtype;
};

struct Wanted {
  ciranda_collective collective = CIRANDA_ALLREDUCE;
  ciranda_reduce_op op = CIRANDA_SUM;
  std::string name;
  int root = -1;
  int lane = 0;
  double prescale = 1.0;
  double postscale = 1.0;
  std::uint32_t flags = 0;
};

using native::Operation;

// Throws an exception of Paddle's class: only for this class does Paddle's executor propagate the message.
[[noreturn]] void raise(const std::string& message);

[[noreturn]] inline void fail(ciranda_status status, const std::string& message) {
  raise(std::string(ciranda_status_name(status)) + ": " + kBinding + ": " + message);
}

[[noreturn]] inline void refuse(const std::string& message) { fail(CIRANDA_INVALID_ARGUMENT, message); }

// The engine's message without the binding's name at its start, as fail() writes that name.
inline std::string message_of(const Operation& operation) {
  const std::string message = native::failure_of(operation);
  const std::string prefix = std::string(kBinding) + ": ";
  return message.starts_with(prefix) ? message.substr(prefix.size()) : message;
}

// A request and its context, for the duration of one call.
class Request {
 public:
  Request(const Wanted& wanted, const std::vector<Described>& tensors) {
    if (!context_) refuse(native::kNotInitialized);
    for (const Described& each : tensors) {
      tensors_.push_back({each.input, each.output, each.shape.data(), static_cast<std::int32_t>(each.shape.size()),
                          each.dtype, nullptr, 0, 0, 0, nullptr});
    }
    request_.collective = wanted.collective;
    request_.op = wanted.op;
    request_.root = wanted.root;
    request_.prescale = wanted.prescale;
    request_.postscale = wanted.postscale;
    request_.flags = wanted.flags;
    request_.name = wanted.name.c_str();
    request_.tensors = tensors_.data();
    request_.tensors_count = tensors_.size();
    request_.lane = static_cast<std::uint32_t>(wanted.lane);
    request_.binding = kBinding;
  }

  ciranda_context* context() const { return context_.get(); }
  const ciranda_request* get() const { return &request_; }

 private:
  native::Context context_;
  std::vector<ciranda_tensor> tensors_;
  ciranda_request request_ = CIRANDA_REQUEST_INIT;
};

// Blocks until the call has succeeded. The operation has the outputs that the engine has allocated; it may be null.
inline Operation run(const Wanted& wanted, const std::vector<Described>& tensors) {
  const Request request(wanted, tensors);
  ciranda_operation* made = nullptr;
  const ciranda_status status = ciranda_run(request.context(), request.get(), &made);
  Operation operation(made);
  if (status != CIRANDA_OK) fail(status, message_of(operation));
  return operation;
}

// The calls that have been started but not waited for, by name.
template <typename Kept>
class Started {
 public:
  // Throws if the engine refuses the call; finish() throws later errors.
  void start(const Wanted& wanted, const std::vector<Described>& tensors, Kept kept) {
    forget_if_done(wanted.name);
    const Request request(wanted, tensors);
    ciranda_operation* made = nullptr;
    const ciranda_status status = ciranda_submit(request.context(), request.get(), &made);
    Operation operation(made);
    if (status != CIRANDA_OK) fail(status, message_of(operation));
    const std::scoped_lock lock(mutex_);
    calls_.insert_or_assign(wanted.name, Call{std::move(operation), std::move(kept)});
  }

  // For a run that does not communicate: finish() does not wait for it.
  void leave_out(const std::string& name) {
    forget_if_done(name);
    const std::scoped_lock lock(mutex_);
    calls_.insert_or_assign(name, Call{});
  }

  // Waits for all named calls, even after a failure, so that the engine no longer uses the kept objects.
  void finish(const std::vector<std::string>& names) {
    std::string failure;
    ciranda_status worst = CIRANDA_OK;
    for (const std::string& name : names) {
      const Call call = take(name);
      if (!call.operation) continue;
      const ciranda_status status = ciranda_wait(call.operation.get());
      if (status != CIRANDA_OK && worst == CIRANDA_OK) {
        worst = status;
        failure = message_of(call.operation);
      }
    }
    if (worst != CIRANDA_OK) fail(worst, failure);
  }

  std::int64_t count() const {
    const std::scoped_lock lock(mutex_);
    return static_cast<std::int64_t>(calls_.size());
  }

 private:
  struct Call {
    Operation operation;
    Kept kept;
  };

  Call take(const std::string& name) {
    const std::scoped_lock lock(mutex_);
    const auto found = calls_.find(name);
    if (found == calls_.end()) {
      refuse("sync_comm waits for " + name + ", which no allreduce_start of this run has started");
    }
    Call call = std::move(found->second);
    calls_.erase(found);
    return call;
  }

  // Removes a completed call that was never finished, because its run failed after start().
  void forget_if_done(const std::string& name) {
    const std::scoped_lock lock(mutex_);
    const auto found = calls_.find(name);
    if (found == calls_.end()) return;
    if (found->second.operation && ciranda_poll(found->second.operation.get()) == 0) {
      refuse(name +
             " is started again before the call of the same name has ended: give collectives names of their own");
    }
    calls_.erase(found);
  }

  mutable std::mutex mutex_;
  std::map<std::string, Call> calls_;
};

}  // namespace ciranda::paddle_ops
