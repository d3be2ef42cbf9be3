#include <nanobind/nanobind.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>

#include "base/block_signals.hpp"
#include "base/own_thread.hpp"
#include "bindings/python/bindings.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/python/gil.hpp"

namespace ciranda::python {

namespace nb = nanobind;

namespace {

// Lives as long as the process, as its thread does.
struct StackWatch {
  int fd;
  int signal;
  PyObject* dump;
};

// The name by which others find the thread: at most 15 bytes.
constexpr const char* kThreadName = "ciranda-stacks";

// Whether somebody has asked; false when nobody can any more.
bool wait_for_request(int fd) {
  char request = 0;
  ssize_t n_read = 0;
  do {
    n_read = ::read(fd, &request, 1);
  } while (n_read < 0 && errno == EINTR);
  return n_read == 1;
}

// The interpreter knows this thread during `dump` only, so that it counts as one that makes no calls. Nothing here has
// a destructor while the GIL is requested: an interpreter that ends may unwind the thread.
void dump_with_gil(PyObject* dump) {
  if (is_detained()) return;
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject* const result = PyObject_CallObject(dump, nullptr);
  if (result == nullptr) PyErr_Clear();
  Py_XDECREF(result);
  PyGILState_Release(state);
}

void* run(void* argument) {
  const auto& watch = *static_cast<const StackWatch*>(argument);
  const OwnThread own;
  pthread_setname_np(pthread_self(), kThreadName);
  sigset_t only{};
  sigemptyset(&only);
  sigaddset(&only, watch.signal);
  pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  while (wait_for_request(watch.fd)) dump_with_gil(watch.dump);
  return nullptr;
}

// Calls `dump` for each byte that can be read from `fd`, on a thread that also receives `signal`, and no other.
void watch_stacks(int fd, int signal, const nb::callable& dump) {
  auto* const watch = new StackWatch{fd, signal, nb::object(dump).release().ptr()};
  const BlockSignals blocked;
  pthread_t thread{};
  if (pthread_create(&thread, nullptr, &run, watch) != 0) {
    Py_DECREF(watch->dump);
    delete watch;
    raise_invalid_argument("there is no thread left");
  }
  pthread_detach(thread);
}

}  // namespace

void bind_stack_watch(nb::module_& m) {
  m.def("watch_stacks", &watch_stacks, nb::arg("fd"), nb::arg("signal"), nb::arg("dump"),
        "Calls dump() for each byte that can be read from fd, on a thread that also receives the signal.");
}

}  // namespace ciranda::python
