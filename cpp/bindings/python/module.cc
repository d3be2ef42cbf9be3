// ciranda._core: the engine for Python. The classes and functions are described in src/ciranda/_core.pyi.
#include <nanobind/nanobind.h>

#include "bindings/python/bindings.hpp"
#include "bindings/python/callers.hpp"
#include "bindings/python/engine_handle.hpp"
#include "bindings/python/gil.hpp"
#include "bindings/python/operation_handle.hpp"
#include "bindings/python/recording_handle.hpp"
#include "bindings/python/tensor_reader.hpp"

NB_MODULE(_core, m) {
  // Objects that modules hold at exit are not leaks.
  nanobind::set_leak_warnings(false);
  m.attr("__version__") = CIRANDA_VERSION;
  ciranda::python::answer_for_threads();
  ciranda::python::bind_gil(m);
  ciranda::python::bind_tables(m);
  ciranda::python::bind_tensor_description(m);
  ciranda::python::bind_operation_handle(m);
  ciranda::python::bind_completion_queue(m);
  ciranda::python::bind_recording_handle(m);
  ciranda::python::bind_engine_handle(m);
  ciranda::python::bind_store_server(m);
  ciranda::python::bind_line_probe(m);
  ciranda::python::bind_key_agreement(m);
  ciranda::python::bind_stack_watch(m);
  ciranda::python::bind_log_watch(m);
}
