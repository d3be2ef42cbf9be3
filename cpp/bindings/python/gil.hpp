// GilReleased: releases the GIL while a thread blocks in the engine, and takes it back afterwards.
//
// While the interpreter ends, a thread that requests the GIL does not return: before Python 3.14 its frames are
// unwound, and a C++ destructor on the way calls abort(). So this process counts the threads that have released the GIL
// here, and before the interpreter ends the thread that ends it calls detain_other_threads().
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

// For the thread that is about to end the interpreter: from here on no other thread gets the GIL back from GilReleased,
// but sleeps until the process ends, as daemon threads may. Needs the GIL, and releases it until all threads that are
// already taking it back have had it.
void detain_other_threads();

// Whether detain_other_threads() was called, by another thread than this one. Any thread, with the GIL or without.
bool is_detained();

// Does not return if is_detained(). For calls that fail because the interpreter ends: a daemon thread would report this
// while its output is being closed. Needs the GIL.
void stay_if_detained();

// In a child after fork(): the threads that were counted are its parent's. Needs the GIL.
void forget_other_threads();

void bind_gil(nanobind::module_& m);

}  // namespace ciranda::python
