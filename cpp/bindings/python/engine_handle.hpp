// EngineHandle: the Python object of the engine; PreparedRequest: a request that is made many times, built once.
//
// Threads: every method needs the GIL and releases it only while it blocks.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <utility>

#include "bindings/python/operation_handle.hpp"
#include "bindings/python/request_builder.hpp"
#include "bindings/python/session.hpp"

namespace ciranda::python {

// A named request without its tensors, and the handle by which its calls find their operation. It may outlive
// sessions.
struct PreparedRequest {
  Request prototype;
  OpHandle op;
};

class EngineHandle {
 public:
  explicit EngineHandle(std::shared_ptr<Session> session) : session_(std::move(session)) {}

  const Session& session() const { return *session_; }
  Session& session() { return *session_; }
  const Engine& engine() const { return *session_->engine(); }

  // Submits and waits: a blocking call, without the cost of a handle if Engine::repeat() executes it.
  // `request`, here and below: without tensors.
  nb::list run(Request&& request, nb::handle inputs, nb::handle outputs);
  OperationHandle submit(Request&& request, nb::handle inputs, nb::handle outputs);
  // In place. `tensors` as in attach_tensors(). With a weight the average divides by the sum of the weights.
  // `is_early`: as in Request.
  OperationHandle submit_prepared(PreparedRequest& prepared, nb::handle tensors, std::optional<double> weight,
                                  bool is_early);

 private:
  // The description of the tensors of one call. Calls view it; each has its own, as reading a tensor may run Python
  // code that calls again.
  struct CallTensors {
    TensorSignature input;
    TensorSignature output;
    const dlpack::ExchangeTable* table = nullptr;
  };

  OperationHandle submit_call(const Call& call, Session::Tensors kept, const CallTensors& tensors, OpHandle* op);
  OperationHandle submit_attached(Request&& request, nb::handle inputs, nb::handle outputs);
  OperationHandle submit_request(Request&& request, AttachedTensors attached, OpHandle* op);
  // A view of both, if it can be one.
  std::optional<Call> as_call(const Request& request, nb::handle inputs, nb::handle outputs, CallTensors& tensors);
  bool read_tensors(Call& call, nb::handle inputs, nb::handle outputs, CallTensors& tensors);
  // The handle of a call's operation.
  OperationHandle handle_of(Engine::OperationPtr operation, Collective collective, Session::Tensors kept,
                            const CallTensors& tensors);

  std::shared_ptr<Session> session_;
  CallTensors call_tensors_;  // lent to the current call
};

void bind_engine_handle(nb::module_& m);

}  // namespace ciranda::python
