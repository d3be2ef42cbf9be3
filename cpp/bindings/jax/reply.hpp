// Reply: reports the outcome of a call to XLA.
//
// Threads: any. Exactly one call of end() or fail(). XLA may run the next steps of the program inside that call, user
// code included. REQUIRES: no other work waits for the calling thread.
//
// Called by collective.hpp, gpu_collective.hpp and look.hpp.
#pragma once

#include <string>

#include "bindings/jax/ffi.hpp"

namespace ciranda::jax {

// An error that a handler returns, or a future fails with; XLA owns it.
inline ffi::Error* make_error(const ffi::Api* api, ffi::Code code, const char* message) {
  ffi::MakeError request{sizeof(ffi::MakeError), nullptr, message, code};
  return api->make_error(&request);
}

// The error of a call that cannot be made.
inline ffi::Error* refusal(const ffi::Frame& frame, const std::string& problem) {
  return make_error(frame.api, ffi::kInvalidArgument, problem.c_str());
}

class Reply {
 public:
  // Creates the frame's future, which the handler must then end. False if XLA could not.
  bool open(ffi::Frame* frame) {
    api_ = frame->api;
    ffi::MakeFuture request{sizeof(ffi::MakeFuture), nullptr, nullptr};
    if (api_->make_future(&request) != nullptr) return false;
    future_ = frame->future = request.future;
    return true;
  }

  void end() const {
    ffi::EndFuture request{sizeof(ffi::EndFuture), nullptr, future_};
    (void)api_->end_future(&request);
  }

  void fail(ffi::Code code, const char* message) const {
    ffi::FailFuture request{sizeof(ffi::FailFuture), nullptr, future_, make_error(api_, code, message)};
    (void)api_->fail_future(&request);
  }

 private:
  const ffi::Api* api_ = nullptr;
  ffi::Future* future_ = nullptr;
};

}  // namespace ciranda::jax
