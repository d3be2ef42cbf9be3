// Other launchers of several processes, which do not pass on how Ciranda's ranks connect: mpirun, srun, torchrun ...
//
// A process that is not told its world's size is a world of one. If another launcher has started several processes,
// each would train alone, without an error. The table lists the variables by which such a launcher can be detected.
//
// Called by connect(), EngineHandle, capi/context.cc and bindings/python/tables.cc; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/config.hpp"
#include "base/exported.hpp"

namespace ciranda {

struct LauncherVariable {
  // Several processes are meant by a size above 1, an index above the first, and more than one host or worker.
  enum class Means : std::uint8_t { kSize, kIndex, kIndexFromOne, kHosts, kListOfHosts, kWorkersOfTensorFlow };
  std::string_view name;
  Means means;
  std::string_view launcher;
  std::string_view instead;           // the command to use; " N " stands for the number of processes
  std::string_view agrees_with = {};  // a variable with the same number, unless this one was inherited from another job
};

CIRANDA_EXPORTED std::span<const LauncherVariable> launcher_variables();

// Whether it numbers a process, and does not say how many there are.
CIRANDA_EXPORTED bool is_index(const LauncherVariable& row);

// Whether it describes the hosts of a job, on each of which one process may start others. `ciranda run` passes it on.
CIRANDA_EXPORTED bool describes_hosts(const LauncherVariable& row);

// InvalidArgument if this process would be a world of one by accident: its world's size is not set, a world of one is
// not requested (CIRANDA_ENGINE=none), and a launcher's variable tells of more processes.
CIRANDA_EXPORTED Status refuse_one_by_accident(const GetEnv& get_env);

// A warning if this process is a world of one, but may be the first of several: some launchers set only the number of
// each process, so the first process cannot tell whether there are others.
CIRANDA_EXPORTED std::optional<std::string> doubt_that_one_is_meant(const GetEnv& get_env);

}  // namespace ciranda
