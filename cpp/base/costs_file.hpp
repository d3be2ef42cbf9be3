// The file in which a user's measured HostCosts are kept, one for each kind of host.
//
// What it was measured on (processor, cores, version) is in its name and in it, so that homes that hosts share, and
// updates, do no harm. Written beside it and renamed: a reader finds the old or the new, never a part.
// Threads: any. Failure: a file that is not exactly as it should be is an error that says what is wrong with it, and is
// of no other use.
#pragma once

#include <optional>
#include <string>

#include "base/config.hpp"
#include "base/host_costs.hpp"
#include "base/status.hpp"

namespace ciranda {

struct CostsFile {
  std::string path;     // empty: there is nowhere to keep one
  std::string machine;  // one line: what the costs are those of
};

// In `folder`, or if that is empty the user's cache folder ($XDG_CACHE_HOME/ciranda or ~/.cache/ciranda).
CostsFile costs_file(const std::string& folder, const GetEnv& get_env);

// Nothing if there is no such file.
Result<std::optional<HostCosts>> load_costs(const CostsFile& file);

// Makes the folder too. REQUIRES: are_within_bounds(costs).
Status save_costs(const CostsFile& file, const HostCosts& costs);

}  // namespace ciranda
