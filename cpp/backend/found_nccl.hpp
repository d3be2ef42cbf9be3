// Which NCCL there is, for those who ask without using it: `nccl_built()` and `ciranda doctor`.
// Used by Nccl, which defines the functions, and examined_devices.hpp; any thread.
#pragma once

#include <optional>
#include <string>

#include "base/exported.hpp"
#include "base/status.hpp"

namespace ciranda {

struct FoundNccl {
  int version = 0;        // as NCCL has it, 22809 for 2.28.9; 0: none
  std::string path = {};  // of its file
  Status usable = {};     // or why not, and what to do
};

// The one that would be used, which is opened. `named`: what CIRANDA_NCCL says; empty: nothing.
CIRANDA_EXPORTED FoundNccl find_nccl(const std::string& named);
// The one that this process has loaded; nothing is opened.
CIRANDA_EXPORTED std::optional<FoundNccl> loaded_nccl();

}  // namespace ciranda
