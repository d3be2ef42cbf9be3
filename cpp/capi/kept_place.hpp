// kept_place: the place of a rank in its world, which one process can have at a time.
//
// A program that a rank starts inherits the variables that describe the rank's place. If it joined, it would wait for
// ranks that never come, or, if every rank starts one, form a second world in silence. What stands between a launcher
// and a rank (a shell, numactl, env, another launcher) inherits them as well and hands them on, rightly. So a process
// that joins a world of several ranks says in its environment where it keeps its place: in a file in memory, which is
// gone when it leaves the world or ends. Only a program that finds its own place kept there, by another process, is
// refused.
//
// Threads: those that read the environment (getenv) must not run while one joins or leaves, as setenv() demands.
#pragma once

#include <string>

#include "base/config.hpp"
#include "base/unique_fd.hpp"

namespace ciranda::capi {

// Where the place is kept. Not a setting.
inline constexpr const char* kTakenBy = "CIRANDA_TAKEN_BY";

// What tells the place that the engine's own variables describe from all others, of this job and others; empty if they
// describe none.
std::string place_of(const GetEnv& get_env);

// Why no world can be joined in `place`: another process keeps it, which has started this program, or one before it.
// Empty if none does.
std::string why_taken(const std::string& place);

// A process's hold on its place. Moves, never copies.
class KeptPlace {
 public:
  KeptPlace() = default;  // keeps none
  // `place`: not empty.
  KeptPlace(int rank, const std::string& place);
  KeptPlace(KeptPlace&&) noexcept = default;
  KeptPlace& operator=(KeptPlace&& other) noexcept;
  ~KeptPlace() { release(); }

  // What the environment says; empty if it keeps none.
  std::string path() const;
  void release();

 private:
  UniqueFd file_;
};

}  // namespace ciranda::capi
