// FailedOperations: failed operations whose errors have not been reported to MXNet's engine yet.
//
// MXNet has one list of the errors of all operations, and does not lock it. Two kinds of threads add to the list: the
// CPU worker, when it ends an operation with an error (ThreadedEngine::OnComplete) or begins one on a failed array
// (OnStart), and a thread that deletes a failed array. If one of our threads reported errors as well, it would
// sometimes corrupt the list, and with it the heap. So the CPU worker reports them, in an operation without arrays. If
// all calls fail, this operation lasts until the last one has failed (one second at most): a thread that waits for one
// of the arrays, and then deletes the others, should continue only after it.
//
// With more workers (MXNET_CPU_WORKER_NTHREADS, MXNET_ENGINE_TYPE=ThreadedEngine) MXNet's own operations can corrupt
// the list.
//
// Called by Running; any thread.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "bindings/mxnet/mx_api.hpp"

namespace ciranda::mxnet {

class FailedOperations {
 public:
  // Any thread. `are_all_failing`: all other pending calls will fail soon, too.
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
  bool is_pushed_ = false;  // true while the operation that reports the errors is in MXNet's queue
  std::atomic<bool> are_all_failing_{false};
};

FailedOperations& failed_operations();

}  // namespace ciranda::mxnet
