// ops: TensorFlow's ops: allreduce, broadcast, allgather, reducescatter, each for any number of tensors; alltoall,
// barrier, join; CirandaPlace, which returns ranks and sizes; and CirandaLook, by which Python sees values (looks.hpp).
//
// Failure: returned as text; "" on success.
//
// Called by plugin.cc, in ciranda_plugin_open(); the thread that imports the framework's module, without the GIL; no
// lock.
#pragma once

#include <string>

namespace ciranda::tensorflow {

// Defines all ops, and registers their kernels. Once in a process.
std::string register_ops();

}  // namespace ciranda::tensorflow
