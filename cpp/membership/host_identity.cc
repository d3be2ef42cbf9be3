#include "membership/host_identity.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>

namespace ciranda {

HostIdentity identify_host(const std::string& shm_folder) {
  HostIdentity identity;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> identity.machine;
  struct stat info {};
  if (stat("/proc/self/ns/pid", &info) == 0) identity.machine += "/" + std::to_string(info.st_ino);
  identity.shared_memory = identity.machine + "/" + std::to_string(geteuid());
  if (stat(shm_folder.c_str(), &info) == 0) identity.shared_memory += "/" + std::to_string(info.st_dev);
  return identity;
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

}  // namespace ciranda
