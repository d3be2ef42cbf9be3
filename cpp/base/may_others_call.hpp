// MayOthersCall: what the engine asks its process, to know whether this rank stands: whether anybody could make a call.
//
// Any thread.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <functional>
#include <span>

namespace ciranda {

// One that sleeps in wait().
struct WaitingThread {
  pthread_t thread;
  pid_t id;  // the system's number of it
};

// Whether a thread of the process that is none of these may yet make a call. Whoever cannot tell says that it may.
// Asked twice in a row by one thread: the second time with the progress lock, so that no call is completed meanwhile;
// then the answer may wait for no other thread, and is whether the first still holds.
enum class Asked { kAtFirst, kWithLock };
using MayOthersCall = std::function<bool(std::span<const WaitingThread> waiting, Asked asked)>;

}  // namespace ciranda
