// HostIdentity: what two processes compare to see whether it is worth trying to share memory.
//
// Equality proves nothing (containers, copied machines): the probe does. Difference is taken at its word.
// Threads: pure, but for reading /proc. Failure: what cannot be read is left out.
#pragma once

#include <string>

namespace ciranda {

struct HostIdentity {
  // The running kernel and this process's view of its processes: equal means that process numbers mean the same.
  std::string machine;
  // The machine, the user and the file system for shared memory.
  std::string shared_memory;
};

HostIdentity identify_host(const std::string& shm_folder);

std::string host_name();

}  // namespace ciranda
