// open_log: the logger that the settings describe.
// Called by connect(), WorldParts and capi/worlds.cc; any thread.
#pragma once

#include <string>

#include "base/config.hpp"
#include "base/log.hpp"
#include "base/status.hpp"

namespace ciranda {

// The name of this rank's file: %r is the rank, %h the host, %% a percent sign. A name without %r gets ".RANK" at its
// end, unless this process has no job.
std::string log_file_of(const Config& config, const std::string& host);

// InvalidArgument if there is a file that cannot be written.
Result<Logger> open_log(const Config& config);
// The same for this rank, on standard error if the file cannot be written.
Logger open_log_anyhow(Config config, int rank);

}  // namespace ciranda
