#include "bindings/python/operation_handle.hpp"

#include <nanobind/stl/optional.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "bindings/python/errors.hpp"
#include "bindings/python/gil.hpp"
#include "bindings/python/outputs.hpp"

namespace ciranda::python {

OperationHandle::OperationHandle(std::shared_ptr<Session> session, Engine::OperationPtr operation,
                                 Session::Tensors tensors)
    : session_(std::move(session)), operation_(std::move(operation)), tensors_(std::move(tensors)) {}

OperationHandle::~OperationHandle() {
  if (operation_ == nullptr || operation_->has_ended() || (is_done() && !tensors_.inputs.is_valid())) return;
  session_->adopt(std::move(operation_), std::move(tensors_));
}

void OperationHandle::set_results(std::vector<DataType> dtypes, const Place& place, TensorLibrary library) {
  output_dtypes_ = std::move(dtypes);
  place_ = place;
  library_ = std::move(library);
}

// What is next in the stream in which the call was made may write to the tensors' memory once they are released: the
// library gives it away. So they are kept until the device is done with them, unless that stream waits for it.
void OperationHandle::order_results() {
  bool is_ordered = place_.is_host();
  if (!is_ordered && operation_->status().ok()) {
    const Place here = library_.current_place(place_.index);
    raise_unless_ok(operation_->order(here));
    is_ordered = here.queue == place_.queue;
  }
  if (is_ordered || !tensors_.inputs.is_valid() || operation_->has_ended()) return release_tensors();
  session_->adopt(operation_, std::exchange(tensors_, {}));
}

// Releasing tensors may run Python code that calls this again: the handle has none by then.
void OperationHandle::release_tensors() { static_cast<void>(std::exchange(tensors_, {})); }

Engine::Deadline deadline_in(std::optional<double> seconds) {
  if (!seconds) return {};
  constexpr double kLongest = 1e8;  // more than three years, which the clock can represent
  const std::chrono::duration<double> left(std::clamp(*seconds, 0.0, kLongest));
  return std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::nanoseconds>(left);
}

void OperationHandle::wait(std::optional<double> seconds) {
  OperationHandle* const self = this;
  wait_all({&self, 1}, deadline_in(seconds));
}

void OperationHandle::when_done(Operation::Callback callback) {
  if (is_done()) return operation_->when_done(std::move(callback));
  const std::shared_ptr<Engine> engine = session_->engine();
  const Engine::OperationPtr operation = operation_;
  const GilReleased released;
  engine->when_done(operation, std::move(callback));
}

void OperationHandle::wait_all(std::span<OperationHandle* const> handles, const Engine::Deadline& deadline) {
  std::vector<std::pair<std::shared_ptr<Engine>, Engine::OperationPtr>> pending;
  for (const OperationHandle* handle : handles) {
    if (!handle->is_done()) pending.emplace_back(handle->session_->engine(), handle->operation_);
  }
  Status given_up;
  if (!pending.empty()) {
    const GilReleased released;
    for (const auto& [engine, operation] : pending) {
      Status status = engine->wait(operation, &gives_up_wait, deadline);
      if (operation->is_done()) continue;  // the status is the operation's own, read below
      given_up = std::move(status);
      break;
    }
    pending.clear();
  }
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  if (given_up.kind() == ErrorKind::kTimeout) raise(given_up);
  const Status* failure = nullptr;
  for (OperationHandle* handle : handles) {
    if (!handle->is_done()) raise(Status::internal("the engine returned from a wait before the operation was done"));
    handle->order_results();
    if (failure == nullptr && !handle->operation_->status().ok()) failure = &handle->operation_->status();
  }
  if (failure != nullptr) raise(*failure);
}

bool OperationHandle::poll() {
  if (is_done()) return true;
  const std::shared_ptr<Engine> engine = session_->engine();
  const GilReleased released;
  return engine->poll(operation_);
}

nb::list OperationHandle::outputs() const {
  nb::list arrays;
  if (!is_done() || !operation_->status().ok()) return arrays;
  const std::vector<OutputBuffer>& buffers = operation_->outputs();
  for (std::size_t i = 0; i < buffers.size() && i < output_dtypes_.size(); ++i) {
    arrays.append(wrap_output(buffers[i], output_dtypes_[i], library_));
  }
  return arrays;
}

namespace {

void wait_for_list(const nb::list& list) {
  const nb::tuple kept(list);  // other threads may change the list meanwhile
  std::vector<OperationHandle*> handles;
  handles.reserve(nb::len(kept));
  for (nb::handle item : kept) handles.push_back(&nb::cast<OperationHandle&>(item));
  OperationHandle::wait_all(handles);
}

}  // namespace

void bind_operation_handle(nb::module_& m) {
  nb::class_<OperationHandle>(m, "Operation", "A submitted operation.")
      .def("wait", &OperationHandle::wait, nb::arg("seconds") = nb::none(),
           "Returns when the operation is done; raises what it failed with, or TimeoutError when the time is over.")
      .def("poll", &OperationHandle::poll, "Whether the operation is done. Never blocks.")
      .def(
          "value", [](const OperationHandle& self) { return self.value(); },
          "The number that some collectives result in: the last rank to join, the id of a process set; else 0.")
      .def("outputs", &OperationHandle::outputs, "The tensors that the engine allocated, once the operation is done.");
  m.def("wait_all", &wait_for_list, nb::arg("operations"),
        "Waits for every operation of the list, then raises the first failure among them, if any.");
}

}  // namespace ciranda::python
