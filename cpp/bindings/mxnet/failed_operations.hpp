// FailedOperations: operations that have failed, until that is reported to MXNet's engine.
//
// MXNet has one list of the errors of all operations, and does not lock it. A thread adds to it when it ends an
// operation with an error (ThreadedEngine::OnComplete), and when it begins one on an array that has failed (OnStart):
// the worker of the CPU, and a thread that deletes such an array. So that worker reports the errors, in an operation
// without arrays: reported by a thread of ours they sometimes corrupt the list, and with it the heap. If all calls
// fail, that operation lasts until the last has failed: a thread that waits for one of the arrays, and then deletes the
// others, continues after it.
//
// With more workers (MXNET_CPU_WORKER_NTHREADS, MXNET_ENGINE_TYPE=ThreadedEngine) MXNet's own operations can corrupt
// it.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "bindings/mxnet/mx_api.hpp"

namespace ciranda::mxnet {

class FailedOperations {
 public:
  // On any thread. `are_all_failing`: all other pending calls will fail soon, too.
  void add(const OnComplete& done, std::string text, bool are_all_failing);

 private:
  struct Failed {
    OnComplete done;
    std::string text;
  };

  static void run(void* run_context, void* done, void* self);
  static void discard(void* self);
  bool push();
  void tell_all();
  void tell();
  std::vector<Failed> take();

  std::mutex lock_;
  std::vector<Failed> waiting_;
  bool is_pushed_ = false;  // the operation that reports them
  std::atomic<bool> are_all_failing_{false};
};

FailedOperations& failed_operations();

}  // namespace ciranda::mxnet
