// callers: which threads of this process may make a call. Those that the engine has started do not. Of all others only
// the language that they run in can know: in C any may; an interpreter knows the threads that run its code.
//
// Any thread.
#pragma once

#include <pthread.h>

#include <span>

namespace ciranda::capi {

// As MayOthersCall (progress/long_waits.hpp).
bool others_may_call(std::span<const pthread_t> waiting);

// An interpreter that makes calls tells which of its threads may. Null: there is none (any more).
using InterpretersMayCall = bool (*)(std::span<const pthread_t> waiting);
void ask_interpreter(InterpretersMayCall ask);

// Somebody calls by the C ABI, or is about to: threads that no interpreter knows may, too.
void note_native_callers();

}  // namespace ciranda::capi
