// callers: which threads of this process may make a call. Those that the engine has started do not, nor does one that
// sleeps until another thread of this process wakes it, while all others sleep, too (capi/sleepers.hpp). Of the rest
// only the language that they run in can know: in C any may; an interpreter knows the threads that run its code.
//
// Any thread.
#pragma once

#include <span>

#include "base/may_others_call.hpp"

namespace ciranda::capi {

// As MayOthersCall (base/may_others_call.hpp).
bool others_may_call(std::span<const WaitingThread> waiting, Asked asked);

// An interpreter that makes calls tells which of its threads may. Null: there is none (any more).
using InterpretersMayCall = bool (*)(std::span<const WaitingThread> waiting);
void ask_interpreter(InterpretersMayCall ask);

// Somebody calls by the C ABI, or is about to: threads that no interpreter knows may, too.
void note_native_callers();

}  // namespace ciranda::capi
