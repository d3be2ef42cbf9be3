#include "bindings/python/errors.hpp"

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <utility>

#include "bindings/python/gil.hpp"

namespace ciranda::python {

namespace nb = nanobind;

// The classes are defined in Python, where they can have several bases; each has its kind's name and "Error".
void raise(const Status& status) { raise_as(std::string(to_string(status.kind())) + "Error", status); }

void raise_as(const std::string& name, const Status& status) {
  const nb::object type = nb::module_::import_("ciranda.errors").attr(name.c_str());
  const nb::object message = nb::str(status.message().data(), status.message().size());
  PyErr_SetObject(type.ptr(), message.ptr());
  throw nb::python_error();
}

bool gives_up_wait() {
  if (gettid() != getpid()) return is_detained();
  const nb::gil_scoped_acquire acquired;
  return PyErr_CheckSignals() != 0;
}

void raise_invalid_argument(std::string message) { raise(Status::invalid_argument(std::move(message))); }

}  // namespace ciranda::python
