// own_world: this process's engine, which Python's module `ciranda` holds, and the world that the module joins.
// Called by session.cc; any thread.
#pragma once

namespace ciranda::mpi {

// Joins the world by `ciranda._jax_native.join()` unless this process is in one, and takes the engine's functions. May
// be called again after a failure. Threads: any, one at a time, with or without the GIL. Throws Failure.
void join_world();

}  // namespace ciranda::mpi
