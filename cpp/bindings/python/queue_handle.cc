#include <nanobind/stl/optional.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "bindings/python/bindings.hpp"
#include "bindings/python/completion_queue.hpp"
#include "bindings/python/gil.hpp"
#include "bindings/python/operation_handle.hpp"

namespace ciranda::python {
namespace {

// The Python object of a CompletionQueue. Needs the GIL, which next() releases while it sleeps. Watched operations keep
// the queue alive until they are done.
class QueueHandle {
 public:
  void watch(OperationHandle& operation, std::uint64_t key, std::optional<double> seconds) {
    queue_->expect(key, deadline_in(seconds));
    operation.when_done([queue = queue_, key](const Operation&) { queue->done(key); });
  }
  std::optional<std::uint64_t> next() {
    const std::shared_ptr<CompletionQueue> queue = queue_;
    const GilReleased released;
    return queue->next();
  }
  void close() { queue_->close(); }

 private:
  std::shared_ptr<CompletionQueue> queue_ = std::make_shared<CompletionQueue>();
};

}  // namespace

void bind_completion_queue(nb::module_& m) {
  nb::class_<QueueHandle>(m, "CompletionQueue", "Returns the keys of operations in the order in which they complete.")
      .def(nb::init<>())
      .def("watch", &QueueHandle::watch, nb::arg("operation"), nb::arg("key"), nb::arg("seconds") = nb::none(),
           "Makes next() return the key, once, when the operation is done or the time has passed.")
      .def("next", &QueueHandle::next, nb::sig("def next(self) -> int | None"),
           "Sleeps until there is a key; None if the queue is closed and no key is left.")
      .def("close", &QueueHandle::close, "Ends next() in all threads.");
}

}  // namespace ciranda::python
