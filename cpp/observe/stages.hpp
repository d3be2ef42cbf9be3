// Stages: the times at which one call reached each stage on this rank, and its path. Used by Submission, Engine, Lane,
// RoundsInMemory, RoundsByMessages, InFlight, Counters, ShownCalls, Recorder, RecordRing, TraceFormat, RecordingHandle
// and bindings/python/tables.cc; a plain value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ciranda/ciranda.h"
#include "observe/ticks.hpp"

namespace ciranda {

// The stages in the order of time. A call on a short path skips some of them.
enum class Stage : std::uint8_t {
  kSubmitted = 0,  // the caller submitted the call
  kTaken = 1,      // the engine began to process it
  kReady = 2,      // everything other ranks need (in a direct round: the input) is written, or is in the next frame
  kAgreed = 3,     // this rank knows that all ranks will execute it
  kStarted = 4,    // its plan began
  kDone = 5,       // the result is complete
};
inline constexpr std::size_t kStageCount = 6;

// How the ranks agreed on a call, which also determines how it was executed.
enum class Path : std::uint8_t {
  kNone = CIRANDA_PATH_NONE,            // no agreement: the call failed before
  kDirect = CIRANDA_PATH_DIRECT,        // a repeated call in shared memory; all other ranks had arrived before
  kRepeated = CIRANDA_PATH_REPEATED,    // a repeated call in shared memory; this rank waited for others
  kInMemory = CIRANDA_PATH_MEMORY,      // a request in a direct round in shared memory
  kByMessages = CIRANDA_PATH_MESSAGES,  // a direct round by messages
  kPlan = CIRANDA_PATH_PLAN,            // by the log, and then by a plan
};
constexpr std::string_view to_string(Path path) {
  switch (path) {
    case Path::kNone: return "none";
    case Path::kDirect: return "direct";
    case Path::kRepeated: return "repeated";
    case Path::kInMemory: return "memory";
    case Path::kByMessages: return "messages";
    case Path::kPlan: return "plan";
  }
  return "";
}

class Stages {
 public:
  void note(Stage stage, std::uint64_t when) { at_[static_cast<std::size_t>(stage)] = when; }
  void note(Stage stage) { note(stage, ticks()); }
  // The time of the stage in ticks; 0 if the call skipped it.
  std::uint64_t operator[](Stage stage) const { return at_[static_cast<std::size_t>(stage)]; }

  Path path = Path::kNone;
  std::string_view algorithm{};  // by which a plan moved the data, as the table of algorithms names it; empty: by none
  bool is_recorded = false;      // the recorder was on when the call was submitted: all stages are noted

 private:
  std::array<std::uint64_t, kStageCount> at_{};
};

}  // namespace ciranda
