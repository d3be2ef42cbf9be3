#include <nanobind/nanobind.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <utility>

#include "base/block_signals.hpp"
#include "base/log_listener.hpp"
#include "base/own_thread.hpp"
#include "base/unique_fd.hpp"
#include "bindings/python/bindings.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/python/gil.hpp"

namespace ciranda::python {

namespace nb = nanobind;

namespace {

// The name by which others find the thread: at most 15 bytes.
constexpr const char* kReaderName = "ciranda-log";
// Of lines that the thread has not read yet.
constexpr int kRoomBytes = 1 << 20;

// What the thread has. It outlives the thread, unless the interpreter ends first: then it is never released.
struct Reader {
  int fd;
  PyObject* take;
};

// The interpreter knows this thread during `take` only, so that it counts as one that makes no calls. Nothing here has
// a destructor while the GIL is requested: an interpreter that ends may unwind the thread. Until it is closed it is not
// detained, as its lines are those of the end, too.
void give_with_gil(PyObject* take, const char* line, std::size_t n_bytes) {
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject* const bytes = PyBytes_FromStringAndSize(line, static_cast<Py_ssize_t>(n_bytes));
  PyObject* const result = bytes == nullptr ? nullptr : PyObject_CallFunctionObjArgs(take, bytes, nullptr);
  if (result == nullptr) PyErr_WriteUnraisable(take);
  Py_XDECREF(result);
  Py_XDECREF(bytes);
  PyGILState_Release(state);
}

// Reads until the listener is closed.
void* read_lines(void* argument) {
  const auto& reader = *static_cast<const Reader*>(argument);
  const OwnThread own;
  pthread_setname_np(pthread_self(), kReaderName);
  // Not on the stack of a thread that may be small.
  const auto line = std::make_unique<std::array<char, LogListener::kMostLineBytes>>();
  while (true) {
    const ssize_t n_bytes = ::recv(reader.fd, line->data(), line->size(), 0);
    if (n_bytes > 0) {
      give_with_gil(reader.take, line->data(), static_cast<std::size_t>(n_bytes));
    } else if (n_bytes == 0 || errno != EINTR) {
      return nullptr;
    }
  }
}

// Gives each line of the process's loggers to a function, on a thread of its own, until it is closed.
class LogWatch {
 public:
  explicit LogWatch(const nb::callable& take) {
    if (log_listener().is_open()) raise_invalid_argument("the lines of the log go to another listener already");
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) raise_no_room();
    reader_end_ = UniqueFd(ends[0]);
    UniqueFd writer_end(ends[1]);
    ::setsockopt(writer_end.get(), SOL_SOCKET, SO_SNDBUF, &kRoomBytes, sizeof kRoomBytes);
    reader_ = new Reader{reader_end_.get(), nb::object(take).release().ptr()};
    const BlockSignals blocked;
    if (pthread_create(&thread_, nullptr, &read_lines, reader_) != 0) {
      release();
      raise_no_room();
    }
    log_listener().open(std::move(writer_end));
    is_open_ = true;
  }
  ~LogWatch() { close(); }
  LogWatch(const LogWatch&) = delete;
  LogWatch& operator=(const LogWatch&) = delete;

  // Returns when the lines of until now have been given, unless it is called by their receiver. A child after fork()
  // has neither the thread nor a listener.
  void close() {
    if (!std::exchange(is_open_, false) || owner_ != ::getpid()) return;
    log_listener().close();
    if (pthread_equal(thread_, pthread_self()) != 0) {
      pthread_detach(thread_);
      reader_end_.release();
      return;  // the thread still uses what it has
    }
    {
      const GilReleased released;
      pthread_join(thread_, nullptr);
    }
    release();
  }

 private:
  [[noreturn]] static void raise_no_room() { raise_invalid_argument("there is no thread or socket left"); }

  void release() {
    Py_DECREF(reader_->take);
    delete reader_;
    reader_end_.reset();
  }

  UniqueFd reader_end_;
  Reader* reader_ = nullptr;
  pthread_t thread_{};
  const pid_t owner_ = ::getpid();
  bool is_open_ = false;
};

}  // namespace

void bind_log_watch(nb::module_& m) {
  nb::class_<LogWatch>(m, "LogWatch")
      .def(nb::init<const nb::callable&>(), nb::arg("take"))
      .def("close", &LogWatch::close);
}

}  // namespace ciranda::python
