// HostIdentity: two processes compare it to decide whether to try to share memory.
//
// Equal identities prove nothing (containers, copied machines): only the probe does. Processes with different
// identities do not try. Called by join_world(); pure, but reads /proc. Failure: values that cannot be read are left
// out.
#pragma once

#include <string>

namespace ciranda {

struct HostIdentity {
  // The running kernel and the PID namespace: if equal, process ids mean the same.
  std::string machine;
  // The machine, the user and the file system for shared memory.
  std::string shared_memory;
};

HostIdentity identify_host(const std::string& shm_folder);

std::string host_name();

}  // namespace ciranda
