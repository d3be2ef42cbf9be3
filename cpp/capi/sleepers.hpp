// sleepers: whether all threads of this process sleep until another of its threads wakes them. Then none will run again
// unless a thread of the engine wakes it. Such a thread is in a system call that waits, without a timeout, for a futex
// private to this process.
//
// Libraries of a framework may also have threads that nap: they sleep for a time, check something, and sleep again.
// These are ignored if nothing has resulted for long, and if the process's own program has no thread that naps so.
//
// Called by others_may_call() (callers.hpp): do_others_sleep() without the progress lock, do_still_sleep() with it. Any
// thread; the state belongs to the process. If the system does not
// provide /proc/self/task/*/syscall, all threads count as awake.
#pragma once

#include <span>

#include "base/may_others_call.hpp"

namespace ciranda::capi {

// Whether all threads sleep, except the engine's and those in `waiting`. `may_nap`: threads that nap also count as
// asleep, after 30 seconds in which the main thread has not run, all others together have run less than once a second,
// and no thread was created. Callers ask about once a second.
bool do_others_sleep(std::span<const WaitingThread> waiting, bool may_nap);

// Whether none of them has run since this thread found all of them asleep: then there was a moment at which all slept.
// Waits for no thread.
bool do_still_sleep(std::span<const WaitingThread> waiting);

}  // namespace ciranda::capi
