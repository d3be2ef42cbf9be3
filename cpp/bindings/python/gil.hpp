// GilReleased: releases the GIL while a thread blocks in the engine, and takes it back afterwards.
//
// While the interpreter ends, a thread that requests the GIL does not return: before Python 3.14 its frames are
// unwound, and a C++ destructor on the way calls abort(). Therefore the thread that ends the interpreter first calls
// detain_other_threads(), which waits for the threads that are taking the GIL back here.
//
// Called by callers.hpp, EngineHandle, errors.hpp, LineProbe, log_watch.cc, module.cc, OperationHandle, QueueHandle,
// Session, stack_watch.cc and store_server.cc; any thread, with the GIL.
#pragma once

#include <nanobind/nanobind.h>

namespace ciranda::python {

// Needs the GIL. A detained thread does not return from the constructor, or from the destructor.
class GilReleased {
 public:
  GilReleased();
  ~GilReleased();
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  PyThreadState* state_;
};

// For the thread that is about to end the interpreter. From now on every other thread that would take the GIL back in
// GilReleased sleeps until the process ends, as daemon threads may. Needs the GIL, and releases it until the threads
// that are already taking it back have had it.
void detain_other_threads();

// True if another thread has called detain_other_threads(). Any thread, with the GIL or without.
bool is_detained();

// Does not return if is_detained(). For calls that fail because the interpreter ends: a daemon thread would report this
// while its output is being closed. Needs the GIL.
void stay_if_detained();

// For a child after fork(): resets the counts, which are of the parent's threads. Needs the GIL.
void forget_other_threads();

void bind_gil(nanobind::module_& m);

}  // namespace ciranda::python
