// EngineHandle: the Python object of the engine; PreparedCall: a named call that is made many times.
//
// Threads: every method needs the GIL and releases it only while it blocks.
//
// Called by Python, through module.cc.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/python/call_builder.hpp"
#include "bindings/python/operation_handle.hpp"
#include "bindings/python/session.hpp"

namespace ciranda::python {

// Its handle finds the operation of the name. It may outlive sessions.
struct PreparedCall {
  std::string name;
  Terms terms;
  std::uint64_t set_and_lane;  // as in CallBuilder
  std::int32_t priority;
  OpHandle handle;
};

class EngineHandle {
 public:
  explicit EngineHandle(std::shared_ptr<Session> session) : session_(std::move(session)) {}

  const Session& session() const { return *session_; }
  Session& session() { return *session_; }
  const Engine& engine() const { return *session_->engine(); }

  // How a caller waits for a call, and how the call is matched: bits of `how`.
  static constexpr std::uint32_t kDeferrable = 1;  // Hints::is_deferrable
  static constexpr std::uint32_t kAwaited = 2;     // Hints::is_awaited
  static constexpr std::uint32_t kEarly = 4;       // Hints::is_early
  static constexpr std::uint32_t kNumbered = 8;    // calls of this name may follow each other; matched in their order

  // The arguments are those of CallBuilder.

  // A blocking call. Returns the tensors that the engine allocated.
  nb::list run(const Terms& terms, nb::handle inputs, nb::handle outputs, nb::handle name, std::uint64_t set_and_lane,
               nb::handle splits, nb::handle weight);
  OperationHandle submit(const Terms& terms, nb::handle inputs, nb::handle outputs, nb::handle name,
                         std::uint64_t set_and_lane, nb::handle splits, nb::handle weight, nb::handle priority,
                         std::uint32_t how);
  // A collective without tensors, on process sets or participation.
  OperationHandle submit_bare(int collective, const std::vector<std::int64_t>& arguments, std::uint64_t set_and_lane);
  // In place. With a weight the average divides by the sum of the weights. `is_early`: as in Hints.
  OperationHandle submit_prepared(PreparedCall& prepared, nb::handle tensors, std::optional<double> weight,
                                  bool is_early);

 private:
  Session::Tensors add_tensors(CallBuilder& builder, nb::handle inputs, nb::handle outputs);
  // Throws if the call was refused.
  OperationHandle handle_of(Engine::OperationPtr operation, const CallBuilder& builder, Session::Tensors kept);

  std::shared_ptr<Session> session_;
  CallBuilder builder_;  // lent to the current call: reading a tensor may run Python code that calls again
};

void bind_engine_handle(nb::module_& m);

}  // namespace ciranda::python
