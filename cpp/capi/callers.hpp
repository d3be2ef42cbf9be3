// callers: which threads of this process may make a call. Threads started by the engine make none. Neither does a
// thread that sleeps until another thread of this process wakes it, while all others sleep too (capi/sleepers.hpp). For
// the rest it depends on their language: in C any thread may call; an interpreter knows the threads that run its code.
//
// Called by capi/context.cc, capi/worlds.cc, bindings/python/callers.cc and EngineHandle, which register threads, on
// any; through MayOthersCall by ProgressThreads, on a thread that waits or the background thread, first without and
// then with the progress lock.
#pragma once

#include <span>

#include "base/exported.hpp"
#include "base/may_others_call.hpp"

namespace ciranda::capi {

// As MayOthersCall (base/may_others_call.hpp).
bool others_may_call(std::span<const WaitingThread> waiting, Asked asked);

// Registers an interpreter that makes calls: `ask` tells whether its other threads may call. Null if there is none (any
// more).
using InterpretersMayCall = bool (*)(std::span<const WaitingThread> waiting);
CIRANDA_EXPORTED void ask_interpreter(InterpretersMayCall ask);

// Notes that native code uses the C ABI: threads that no interpreter knows may make calls too.
CIRANDA_EXPORTED void note_native_callers();

}  // namespace ciranda::capi
