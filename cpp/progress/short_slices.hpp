// take_short_slices(): the calling thread is scheduled soon after it wakes, also beside threads that are busy. Its
// share of the processor stays the same: it gives way as soon again.
//
// Any thread, of the ordinary scheduling policy; else nothing happens. No failure: a system that knows no slices of a
// thread's own (Linux before 6.12) leaves it as it is.
#pragma once

namespace ciranda {

void take_short_slices();

}  // namespace ciranda
