#include "bindings/python/callers.hpp"

#include <nanobind/nanobind.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "bindings/python/completion_queue.hpp"
#include "bindings/python/gil.hpp"
#include "capi/callers.hpp"

namespace ciranda::python {

namespace nb = nanobind;

namespace {

struct Function {
  std::string_view module;
  std::string_view name;  // empty: any function of the module
};

// Functions of threads that never make a call, because they only process items that other threads have queued. All
// functions on the stack of such a thread are in this table or in kWaits. (If all are in kWaits, it may be a timer.)
constexpr std::array kWithoutCalls{
    Function{"multiprocessing.queues", "_feed"}, Function{"tensorboard.summary.writer.event_file_writer", ""},
    Function{"torch.utils.data._utils.pin_memory", ""}, Function{"tqdm._monitor", ""}, Function{"ciranda.data", ""}};
constexpr std::array kWaits{Function{"threading", ""}, Function{"queue", ""}, Function{"selectors", ""},
                            Function{"multiprocessing.connection", ""}, Function{"multiprocessing.queues", ""}};
// A thread whose innermost function is in this table waits for work from another thread.
constexpr std::array kIdle{Function{"concurrent.futures.thread", "_worker"},
                           Function{"ciranda.torch.completer", "_run"}};

// Attributes of frames are read without running any Python code, and so without handling signals.
std::string_view text_of(nb::handle text) {
  Py_ssize_t n_bytes = 0;
  const char* const bytes = PyUnicode_Check(text.ptr()) ? PyUnicode_AsUTF8AndSize(text.ptr(), &n_bytes) : nullptr;
  return bytes == nullptr ? std::string_view() : std::string_view(bytes, static_cast<std::size_t>(n_bytes));
}

bool is_in(std::span<const Function> table, std::string_view module, std::string_view name) {
  return std::any_of(table.begin(), table.end(), [&](const Function& row) {
    return row.module == module && (row.name.empty() || row.name == name);
  });
}

bool makes_no_calls(nb::object frame) {
  bool is_known = false;
  for (bool is_innermost = true; !frame.is_none(); is_innermost = false) {
    const nb::object globals = frame.attr("f_globals");
    const nb::object name = frame.attr("f_code").attr("co_name");
    PyObject* const module = PyDict_GetItemString(globals.ptr(), "__name__");
    if (module == nullptr) return false;
    const bool is_idle = is_innermost && is_in(kIdle, text_of(module), text_of(name));
    if (is_idle || is_in(kWithoutCalls, text_of(module), text_of(name))) {
      is_known = true;
    } else if (!is_in(kWaits, text_of(module), text_of(name))) {
      return false;
    }
    frame = frame.attr("f_back");
  }
  return is_known;
}

bool is_among(std::span<const WaitingThread> threads, nb::handle identity) {
  const auto thread = static_cast<pthread_t>(PyLong_AsUnsignedLong(identity.ptr()));
  return std::any_of(threads.begin(), threads.end(),
                     [&](const WaitingThread& each) { return pthread_equal(each.thread, thread) != 0; });
}

bool threads_may_call(std::span<const WaitingThread> waiting) {
  PyObject* const current_frames = PySys_GetObject("_current_frames");  // a borrowed reference
  if (current_frames == nullptr) return true;
  const nb::object frames = nb::steal(PyObject_CallObject(current_frames, nullptr));
  if (!frames.is_valid() || PyDict_Check(frames.ptr()) == 0) return true;
  Py_ssize_t at = 0;
  PyObject* identity = nullptr;
  PyObject* frame = nullptr;
  while (PyDict_Next(frames.ptr(), &at, &identity, &frame) != 0) {
    if (!is_among(waiting, identity) && !makes_no_calls(nb::borrow(frame))) return true;
  }
  return false;
}

// Only the main thread inspects the others: another thread might never get the GIL once the interpreter ends. A call
// from another thread returns true, since the main thread may make a call unless it waits.
bool may_call(std::span<const WaitingThread> waiting) {
  if (gettid() != getpid() || CompletionQueue::are_any_expected()) return true;
  const nb::gil_scoped_acquire acquired;
  try {
    if (!threads_may_call(waiting)) return false;
  } catch (const nb::python_error&) {
  }
  PyErr_Clear();
  return true;
}

}  // namespace

void answer_for_threads() { capi::ask_interpreter(&may_call); }

}  // namespace ciranda::python
