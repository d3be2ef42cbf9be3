#include "context.hpp"

#include <array>

#include "handles.hpp"
#include "streams.hpp"

namespace ciranda::fakes {
namespace {

constexpr auto kSticky = std::to_array({
    CUresult::kEccUncorrectable,
    CUresult::kNvlinkUncorrectable,
    CUresult::kIllegalAddress,
    CUresult::kLaunchTimeout,
    CUresult::kAssert,
    CUresult::kHardwareStackError,
    CUresult::kIllegalInstruction,
    CUresult::kMisalignedAddress,
    CUresult::kInvalidAddressSpace,
    CUresult::kInvalidPc,
    CUresult::kLaunchFailed,
});

struct Primary {
  CUcontext handle = nullptr;
  std::size_t n_retained = 0;
};

struct Contexts {
  std::mutex mutex;
  std::map<CUdevice, Primary> primaries;
  Handles<CUcontext, Context> all;
};

Contexts& contexts() {
  static auto* const kept = new Contexts;  // outlives the threads of the streams
  return *kept;
}

thread_local CUcontext current = nullptr;

}  // namespace

Context::Context(CUdevice number) : device(number), legacy_(make_stream(Stream::Type::kLegacy)) {}

std::shared_ptr<Stream> Context::make_stream(Stream::Type type) {
  auto stream = std::make_shared<Stream>(device, type, order_, fault);
  order_.add(stream);
  return stream;
}

std::shared_ptr<Stream> Context::find(CUstream handle) {
  const auto number = reinterpret_cast<std::uintptr_t>(handle);
  if (number == 0 || number == cuda::kStreamLegacy) return legacy_;
  return number == cuda::kStreamPerThread ? of_this_thread() : streams().find(handle);
}

std::shared_ptr<Stream> Context::of_this_thread() {
  const std::lock_guard lock(mutex_);
  auto& stream = per_thread_[std::this_thread::get_id()];
  if (stream == nullptr) stream = make_stream(Stream::Type::kBlocking);
  return stream;
}

void Context::end_by(CUresult error) {
  for (const CUresult each : kSticky) {
    CUresult none = CUresult::kSuccess;
    if (each == error) fault.compare_exchange_strong(none, error);
  }
}

CUcontext retain_primary(CUdevice device) {
  const std::lock_guard lock(contexts().mutex);
  Primary& primary = contexts().primaries[device];
  if (primary.n_retained++ == 0) primary.handle = contexts().all.add(std::make_shared<Context>(device));
  return primary.handle;
}

CUresult release_primary(CUdevice device) {
  const std::lock_guard lock(contexts().mutex);
  Primary& primary = contexts().primaries[device];
  if (primary.n_retained == 0) return CUresult::kInvalidContext;
  if (--primary.n_retained == 0) contexts().all.find(primary.handle)->is_destroyed = true;
  return CUresult::kSuccess;
}

CUcontext current_handle() { return current; }

// The table keeps it alive.
Context* current_context() { return contexts().all.find(current).get(); }

CUresult set_current(CUcontext handle) {
  if (handle != nullptr && contexts().all.find(handle) == nullptr) return CUresult::kInvalidContext;
  current = handle;
  return CUresult::kSuccess;
}

CUcontext handle_of(CUdevice device) {
  const std::lock_guard lock(contexts().mutex);
  return contexts().primaries[device].handle;
}

}  // namespace ciranda::fakes
