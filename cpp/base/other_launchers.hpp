// Launchers that start several processes and tell them so, but not how to meet in our way: mpirun, srun, torchrun ...
//
// A process that nobody told its size is a world of one. Where another launcher has started several of the same
// program, that would be several worlds of one, each training alone without a word. The table says which variables tell
// of that.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/config.hpp"

namespace ciranda {

struct LauncherVariable {
  enum class Means : std::uint8_t { kSize, kIndex };  // from 2 on, or from 1 on, there are several processes
  std::string_view name;
  Means means;
  std::string_view launcher;
  std::string_view instead;  // what to write; " N " stands for the number of processes
};

std::span<const LauncherVariable> launcher_variables();

// InvalidArgument if this process would be a world of one by accident: nothing says how large its world is, nor
// (CIRANDA_ENGINE=none) that one is meant, and a launcher's variable says that there are more processes.
Status refuse_one_by_accident(const GetEnv& get_env);

// What to warn of if this process is a world of one, but may be the first of several: launchers that tell only their
// processes' numbers tell the first nothing else.
std::optional<std::string> doubt_that_one_is_meant(const GetEnv& get_env);

}  // namespace ciranda
