// Stages: when one call passed from a stage to the next on this rank, and which way it took.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "observe/ticks.hpp"

namespace ciranda {

// In the order in which they come. A call may skip some: the shorter its way, the fewer it has.
enum class Stage : std::uint8_t {
  kSubmitted = 0,  // handed in
  kTaken = 1,      // the engine looks at it
  kReady = 2,      // all that others need has been written (in a direct round: the input), or is in the next frame
  kAgreed = 3,     // this rank knows that all are to carry it out
  kStarted = 4,    // its plan has begun
  kDone = 5,       // the result is there
};
inline constexpr std::size_t kStageCount = 6;

// How the ranks agreed on a call, and so how it was carried out. Values are the C ABI's.
enum class Path : std::uint8_t {
  kNone = 0,        // not at all: it failed before
  kDirect = 1,      // a direct round in memory without a request; all others were there
  kRepeated = 2,    // the same; the others came while it waited
  kInMemory = 3,    // a request in a direct round in memory
  kByMessages = 4,  // a direct round by messages
  kAlong = 5,       // by the log, which brought the inputs of all along
  kPlan = 6,        // by the log, and a plan
};
inline constexpr std::array<std::string_view, 7> kPaths{"none",     "direct", "repeated", "memory",
                                                        "messages", "along",  "plan"};
constexpr std::string_view to_string(Path path) { return kPaths[static_cast<std::size_t>(path)]; }

class Stages {
 public:
  void note(Stage stage, std::uint64_t when) { at_[static_cast<std::size_t>(stage)] = when; }
  void note(Stage stage) { note(stage, ticks()); }
  // In ticks; 0: it never came.
  std::uint64_t operator[](Stage stage) const { return at_[static_cast<std::size_t>(stage)]; }

  Path path = Path::kNone;

 private:
  std::array<std::uint64_t, kStageCount> at_{};
};

}  // namespace ciranda
