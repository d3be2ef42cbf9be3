// OperationHandle: the Python object of a submitted operation. Needs the GIL, which it releases while it waits.
//
// It keeps the tensors of the operation until it has ended or a wait has ordered it; if it is dropped before, the
// session keeps them.
//
// Called by EngineHandle, QueueHandle and Python, through module.cc.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bindings/python/session.hpp"

namespace ciranda::python {

class OperationHandle {
 public:
  OperationHandle(std::shared_ptr<Session> session, Engine::OperationPtr operation, Session::Tensors tensors);
  ~OperationHandle();
  OperationHandle(OperationHandle&&) noexcept = default;
  OperationHandle& operator=(OperationHandle&&) = delete;
  OperationHandle(const OperationHandle&) = delete;
  OperationHandle& operator=(const OperationHandle&) = delete;

  // The parts of the call that are needed when it is done: the dtypes of the outputs that the engine allocates, where
  // the tensors are, and of which library.
  void set_results(std::vector<DataType> dtypes, const Place& place, TensorLibrary library);

  // Throws the operation's error. KeyboardInterrupt, or another exception of a signal handler, leaves the operation
  // pending, as does TimeoutError once the seconds have passed. For tensors on a GPU, what the library gives this
  // thread's current stream afterwards begins after the results; the host does not wait for them.
  void wait(std::optional<double> seconds = {});
  // Waits for all, then throws the first failure, if any. Releases the GIL once. The caller keeps the handles.
  static void wait_all(std::span<OperationHandle* const> handles, const Engine::Deadline& deadline = {});

  // See Engine::when_done. `callback` may run on any thread, without the GIL.
  void when_done(Operation::Callback callback);

  bool poll();

  // A list of arrays; empty unless the collective allocates its output. REQUIRES: wait() has returned.
  nb::list outputs() const;
  std::int64_t value() const { return is_done() ? operation_->value() : 0; }

 private:
  bool is_done() const { return operation_->is_done(); }
  // REQUIRES: is_done().
  void order_results();
  void release_tensors();

  std::shared_ptr<Session> session_;
  Engine::OperationPtr operation_;
  Session::Tensors tensors_;
  std::vector<DataType> output_dtypes_;
  Place place_;
  TensorLibrary library_;
};

// None: no deadline.
Engine::Deadline deadline_in(std::optional<double> seconds);

void bind_operation_handle(nb::module_& m);

}  // namespace ciranda::python
