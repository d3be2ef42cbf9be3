// BlockSignals: during the object's lifetime, this thread and the threads that it starts receive no signals.
// Called by CallbackThreads, DeviceThread, NcclCommunicator, Engine, ProgressThreads, RecordedSteps, log_watch.cc and
// stack_watch.cc, before they start a thread; any thread.
#pragma once

#include <signal.h>

#include <initializer_list>

namespace ciranda {

// Signals are for the user's threads: Ctrl-C must reach the waiting thread. Signals of this thread's own faults are not
// blocked.
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace ciranda
