// kept_slot: the slot of a rank in its world, which only one process may have at a time.
//
// A program started by a rank inherits the variables that describe the rank's slot. If that program joined, it would
// wait for ranks that never arrive, or, if every rank starts one, form a second world unnoticed. Programs between a
// launcher and a rank (a shell, numactl, env, another launcher) also inherit the variables, and must pass them on. So a
// process that joins a world of several ranks writes into its environment the path of a file in memory that holds its
// slot. The file disappears when the process leaves the world or ends. A program is refused only if it finds its own
// slot in such a file of another process.
//
// Threads: no thread may read the environment (getenv) while another joins or leaves, since that calls setenv().
//
// Called by context.cc, handles.hpp, Worlds, Session and EngineHandle.
#pragma once

#include <string>

#include "base/config.hpp"
#include "base/exported.hpp"
#include "base/unique_fd.hpp"

namespace ciranda::capi {

// The variable with the path of that file. Not a setting.
inline constexpr const char* kTakenBy = "CIRANDA_TAKEN_BY";

// A text that identifies the slot described by the engine's own variables, among all slots of this and other jobs.
// Empty if they describe none.
CIRANDA_EXPORTED std::string slot_of(const GetEnv& get_env);

// The error text if no world can be joined in `slot`, because another process keeps it: one that has started this
// program, directly or not. Empty if no process keeps it.
CIRANDA_EXPORTED std::string why_taken(const std::string& slot);

// Keeps a process's slot as long as the object lives. Movable, not copyable.
class KeptSlot {
 public:
  KeptSlot() = default;  // keeps none
  // `slot`: not empty.
  KeptSlot(int rank, const std::string& slot);
  KeptSlot(KeptSlot&&) noexcept = default;
  KeptSlot& operator=(KeptSlot&& other) noexcept;
  ~KeptSlot() { release(); }

  // The path of the file, as in the environment; empty if no slot is kept.
  CIRANDA_EXPORTED std::string path() const;
  void release();

 private:
  UniqueFd file_;
};

}  // namespace ciranda::capi
