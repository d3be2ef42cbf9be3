// EngineHandle: the engine as Python sees it; PreparedRequest: a request that is made many times, built once.
//
// Threads: every method needs the GIL and gives it up only while it blocks.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <utility>

#include "bindings/python/call_profile.hpp"
#include "bindings/python/operation_handle.hpp"
#include "bindings/python/request_builder.hpp"
#include "bindings/python/session.hpp"

namespace ciranda::python {

// Everything of a named request but its tensors. Belongs to no session: it may outlive one.
struct PreparedRequest {
  Request prototype;
};

class EngineHandle {
 public:
  explicit EngineHandle(std::shared_ptr<Session> session) : session_(std::move(session)) {}

  const Session& session() const { return *session_; }
  Session& session() { return *session_; }
  const Engine& engine() const { return *session_->engine(); }
  // Of run().
  CallProfile& profile() { return profile_; }

  OperationHandle submit(const CallOptions& options, nb::handle inputs, nb::handle outputs);
  // Engine::repeat(), where the options and the tensors are those of a Call.
  std::optional<Engine::OperationPtr> repeat(const CallOptions& options, nb::handle inputs, nb::handle outputs,
                                             Moments* moments);
  // Of what repeat() has given for the same.
  OperationHandle handle_of(Engine::OperationPtr operation, Collective collective, nb::handle inputs,
                            nb::handle outputs);
  // In place. `tensors` as in attach_tensors(). With a weight the average divides by the sum of the weights.
  OperationHandle submit_prepared(const PreparedRequest& prepared, nb::handle tensors, std::optional<double> weight);

 private:
  OperationHandle submit_request(Request request, Session::Tensors tensors);
  std::optional<Call> as_call(const CallOptions& options, nb::handle inputs, nb::handle outputs);
  bool read_tensors(Call& call, nb::handle inputs, nb::handle outputs);

  std::shared_ptr<Session> session_;
  CallProfile profile_;
  TensorSignature repeated_;  // of the call at hand; keeps its memory
  TensorSignature repeated_output_;
};

void bind_engine_handle(nb::module_& m);

}  // namespace ciranda::python
