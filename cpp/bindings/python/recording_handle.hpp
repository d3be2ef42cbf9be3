// RecordingHandle: the Python object of a recording. Needs the GIL.
// Called by EngineHandle, which makes it, and Python, through module.cc.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>

#include "observe/recording.hpp"

namespace ciranda::python {

namespace nb = nanobind;

class RecordingHandle {
 public:
  explicit RecordingHandle(std::unique_ptr<Recording> recording) : recording_(std::move(recording)) {}

  // Returns a tuple for each completed call, as described in _core.pyi; an empty list after stop().
  nb::list read();
  std::uint64_t n_lost() const { return recording_ ? recording_->n_lost() : n_lost_; }
  void stop();

 private:
  std::unique_ptr<Recording> recording_;  // null after stop()
  std::uint64_t n_lost_ = 0;              // recording_->n_lost() at stop()
};

void bind_recording_handle(nb::module_& m);

}  // namespace ciranda::python
