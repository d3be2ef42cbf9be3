// take_short_slices(): gives the calling thread short time slices, so that it is scheduled soon after it wakes, even
// beside busy threads. Its share of the processor stays the same, since it is also preempted sooner.
//
// Called by ProgressThreads, on the background thread; any thread may. It has no effect if its scheduling policy is not
// the ordinary one. No failure: on a system without time slices of one thread (Linux before 6.12) it has no effect.
#pragma once

namespace ciranda {

void take_short_slices();

}  // namespace ciranda
