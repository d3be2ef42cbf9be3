#include "bindings/python/gil.hpp"

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace ciranda::python {

namespace {

// Counts the threads that are taking the GIL back, and can prevent further threads from doing so.
class Return {
 public:
  bool is_closed_to_this_thread() const { return is_closed_ && closed_by_ != std::this_thread::get_id(); }

  // Returns false if this thread must never take the GIL. Otherwise the thread takes the GIL now, and then calls end().
  bool begin() {
    const std::lock_guard lock(mutex_);
    if (is_closed_to_this_thread()) return false;
    ++n_returning_;
    return true;
  }

  void end() {
    const std::lock_guard lock(mutex_);
    --n_returning_;
    if (is_closed_) all_are_back_.notify_all();
  }

  // Returns once no thread is taking the GIL back.
  void close() {
    std::unique_lock lock(mutex_);
    if (is_closed_) return;
    closed_by_ = std::this_thread::get_id();
    is_closed_ = true;
    all_are_back_.wait(lock, [this] { return n_returning_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_are_back_;
  int n_returning_ = 0;
  std::thread::id closed_by_;  // written before is_closed_
  std::atomic<bool> is_closed_{false};
};

// Never destroyed: threads sleep in it when the process ends. A forked child gets a new one, since its parent's may be
// locked by a thread that the child does not have.
std::atomic<Return*>& current() {
  static std::atomic<Return*> way_back{new Return};  // NOLINT(cppcoreguidelines-owning-memory)
  return way_back;
}

[[noreturn]] void sleep_for_good() {
  while (true) pause();
}

}  // namespace

GilReleased::GilReleased() {
  stay_if_detained();
  state_ = PyEval_SaveThread();
}

GilReleased::~GilReleased() {
  Return& way_back = *current().load();
  if (!way_back.begin()) sleep_for_good();
  PyEval_RestoreThread(state_);
  way_back.end();
}

void detain_other_threads() {
  PyThreadState* const state = PyEval_SaveThread();
  current().load()->close();
  PyEval_RestoreThread(state);
}

bool is_detained() { return current().load()->is_closed_to_this_thread(); }

void stay_if_detained() {
  if (!is_detained()) return;
  static_cast<void>(PyEval_SaveThread());
  sleep_for_good();
}

void forget_other_threads() { current().store(new Return); }  // NOLINT(cppcoreguidelines-owning-memory)

void bind_gil(nanobind::module_& m) {
  m.def("detain_other_threads", &detain_other_threads,
        "For the thread that ends the interpreter: other threads that wait in the engine never return to Python.");
  m.def("stay_if_detained", &stay_if_detained, "Does not return if another thread has called detain_other_threads().");
  m.def("forget_other_threads", &forget_other_threads,
        "For a child after fork(), which does not have its parent's other threads.");
}

}  // namespace ciranda::python
