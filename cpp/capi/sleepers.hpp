// sleepers: whether all threads of this process sleep until one of them wakes another, so that none will ever do
// anything unless one of the engine's does: each is in a system call that waits for a futex of this process alone,
// without end.
//
// A framework's libraries may also have threads that nap: they sleep for a time, look at something, and sleep again.
// They do not count if nothing has come of it for long, and no thread of the process' own program naps like that.
//
// Any thread; the state is of the process. Where the system does not tell (/proc/self/task/*/syscall), none sleeps.
#pragma once

#include <span>

#include "base/may_others_call.hpp"

namespace ciranda::capi {

// Of all threads but the engine's, and those that wait in it. `may_nap`: it is so also if threads nap, once it has been
// so for 30 seconds in which the main thread has not run, all together less than once a second, and no thread has come;
// it is asked about each second.
bool do_others_sleep(std::span<const WaitingThread> waiting, bool may_nap);

// Whether none of them has run since this thread has seen all of them asleep: then there was a moment at which they all
// were. Waits for no thread.
bool do_still_sleep(std::span<const WaitingThread> waiting);

}  // namespace ciranda::capi
