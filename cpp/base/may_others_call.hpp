// MayOthersCall: a function of the process that tells the engine whether some thread could still make a call. If none
// can, this rank is at a standstill.
//
// Any thread.
//
// Called by ProgressThreads, which gets it from Engine; types used by LongWaits, capi/callers.hpp and sleepers.hpp.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <functional>
#include <span>

namespace ciranda {

// A thread that sleeps in wait().
struct WaitingThread {
  pthread_t thread;
  pid_t id;  // its number in the system
};

// True if a thread of the process that is not among `waiting` may still make a call, or if that is not known. One
// thread calls it twice in a row. The second call is under the progress lock, so that no call is completed meanwhile.
// It must not wait for another thread, and returns whether the first answer still holds.
enum class Asked { kAtFirst, kWithLock };
using MayOthersCall = std::function<bool(std::span<const WaitingThread> waiting, Asked asked)>;

}  // namespace ciranda
