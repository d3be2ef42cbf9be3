// CurrentContext: makes a GPU's context the calling thread's for a scope, as most functions of the driver need it, and
// lets the thread make calls that would spoil the CUDA graph that another one captures, if they were about it. What the
// thread had, torch's or another library's, is restored.
// Called by Events, Gpu, CapturedGraph and PinnedMemory; any thread.
#pragma once

#include "backend/cuda/driver.hpp"

namespace ciranda::cuda {

class CurrentContext {
 public:
  CurrentContext(const Driver& driver, CUcontext context) : driver_(driver) {
    driver_.cuThreadExchangeStreamCaptureMode(&mode_);
    driver_.cuCtxGetCurrent(&before_);
    if (before_ != context) outcome_ = driver_.cuCtxSetCurrent(context);
    has_changed_ = before_ != context && outcome_ == CUresult::kSuccess;
  }
  ~CurrentContext() {
    if (has_changed_) driver_.cuCtxSetCurrent(before_);
    driver_.cuThreadExchangeStreamCaptureMode(&mode_);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

  // Whether the context is the thread's.
  Status status() const { return driver_.check(outcome_, "cuCtxSetCurrent"); }

 private:
  const Driver& driver_;
  CUstreamCaptureMode mode_ = CUstreamCaptureMode::kRelaxed;  // the one to set, and then the one before
  CUcontext before_ = nullptr;
  CUresult outcome_ = CUresult::kSuccess;
  bool has_changed_ = false;
};

}  // namespace ciranda::cuda
