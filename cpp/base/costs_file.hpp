// The file in which a user's measured HostCosts are kept, one for each kind of host.
//
// Its name and its contents identify the measured host (processor, cores, version), so that several hosts can share a
// home folder, and updates invalidate it. It is written to a temporary file and renamed, so a reader finds the old or
// the new one, never a part.
// Called by connect() and bindings/python/tables.cc; any thread. Failure: for an invalid file, an error with the
// reason; the file is not used.
#pragma once

#include <optional>
#include <string>

#include "base/config.hpp"
#include "base/exported.hpp"
#include "base/host_costs.hpp"
#include "base/status.hpp"

namespace ciranda {

struct CostsFile {
  std::string path;     // empty: there is no folder for it
  std::string machine;  // one line that identifies the measured host
};

// The file for this host in `folder`, or, if `folder` is empty, in the user's cache folder ($XDG_CACHE_HOME/ciranda or
// ~/.cache/ciranda).
CIRANDA_EXPORTED CostsFile costs_file(const std::string& folder, const GetEnv& get_env);

// Reads the file; nullopt if it does not exist.
CIRANDA_EXPORTED Result<std::optional<HostCosts>> load_costs(const CostsFile& file);

// Writes the file; makes the folder if necessary. REQUIRES: are_within_bounds(costs).
CIRANDA_EXPORTED Status save_costs(const CostsFile& file, const HostCosts& costs);

}  // namespace ciranda
