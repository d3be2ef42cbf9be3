// Checker: what has happened before what, and whether all uses of memory are ordered. It reasons about calls in the
// order in which they are made, not about when streams come to them: a missing wait is found in every run.
//
// A stream is ordered after what it was given before, after events that it waits for, and after all that the host knows
// of. The host knows of an operation when a call tells that it is over (cuStreamSynchronize, cuStreamQuery,
// cuEventQuery), and of all before a value written by cuStreamWriteValue32 as soon as it is there, since the host reads
// that without a call. What one thread knows all know, because they may tell each other without the driver; with
// FAKE_CUDA_THREADS_APART=1 each knows what its own calls have told.
//
// Threads: any; the functions on clocks need the lock.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "address_map.hpp"
#include "shadow.hpp"
#include "twins.hpp"
#include "types.hpp"
#include "vector_clock.hpp"

namespace ciranda::fakes {

class Checker {
 public:
  std::mutex& mutex() { return mutex_; }

  // What the calling thread knows of. REQUIRES: the lock.
  const VectorClock& known_here();

  // Takes in that `use`, which is ordered after `before`, touches memory. Reports what is not ordered or not allocated.
  // Returns kIllegalAddress for the latter if there are no reports. REQUIRES: the lock.
  CUresult touch(const UseOf& use, std::span<const Touch> touches, const VectorClock& before);

  // The calling thread has learnt of all that `clock` covers. Takes the lock.
  void learn(const VectorClock& clock);
  // Every thread may learn of it from now on. Takes the lock.
  void publish(const VectorClock& clock);
  // The calling thread is about to take memory away by `call`. Reports a use that it does not know of. Takes the lock.
  void end(const Range& range, const char* call);

 private:
  VectorClock& of_this_thread();
  void release_pages();
  void touch(const UseOf& use, const Touch& touch, Range& range, const VectorClock& before);

  std::mutex mutex_;
  std::map<std::thread::id, VectorClock> by_thread_;
  VectorClock by_all_;     // what every thread knows
  VectorClock by_anyone_;  // what some thread knows
};

// The one of the process.
Checker& checker();

}  // namespace ciranda::fakes
