// What every call into the fake driver does first: it is counted, may be made to fail, and is refused before cuInit,
// while the process ends, without a current context, or in a context that an error has ended.
#pragma once

#include <mutex>

#include "captures.hpp"
#include "context.hpp"
#include "report.hpp"
#include "settings.hpp"
#include "types.hpp"
#include "workers.hpp"

namespace ciranda::fakes {

// cuInit has succeeded in this process, not only in the one that it was forked from.
bool is_initialized();

template <typename Function>
CUresult counted(const char* call, const Function& function) {
  if (workers().are_over()) return CUresult::kDeinitialized;
  const CUresult failed = count_call(call);
  return failed == CUresult::kSuccess ? function() : failed;
}

template <typename Function>
CUresult initialized(const char* call, const Function& function) {
  return is_initialized() ? counted(call, function) : CUresult::kNotInitialized;
}

// Calls function(context) with the context's lock.
template <typename Function>
CUresult in_context(const char* call, const Function& function) {
  if (workers().are_over()) return CUresult::kDeinitialized;
  if (!is_initialized()) return CUresult::kNotInitialized;
  Context* const context = current_context();
  if (context == nullptr) return CUresult::kInvalidContext;
  if (context->is_destroyed) return CUresult::kContextIsDestroyed;
  std::unique_lock lock(context->calls, std::defer_lock);
  if (settings()->locks_contexts) lock.lock();
  if (const CUresult fault = context->fault; fault != CUresult::kSuccess) return fault;
  if (const CUresult failed = count_call(call); failed != CUresult::kSuccess) {
    context->end_by(failed);
    return failed;
  }
  if (captures().spoils(call)) return CUresult::kStreamCaptureUnsupported;
  return function(*context);
}

// Calls function(context, stream). A stream that is not there is reported.
template <typename Function>
CUresult on_stream(const char* call, CUstream handle, const Function& function) {
  return in_context(call, [&](Context& context) {
    const auto stream = context.find(handle);
    if (stream != nullptr) return function(context, *stream);
    if (settings()->checks) report(std::string(call) + ": no such stream, or after its end");
    return CUresult::kInvalidHandle;
  });
}

}  // namespace ciranda::fakes
