#include "library_kernel.hpp"

#include <memory>
#include <span>
#include <utility>

#include "call.hpp"
#include "exports.hpp"

namespace ciranda::fakes {

CUresult fake_cuda_launch(CUstream handle, const LibraryKernel* kernel, const CallerTouch* touches,
                          std::size_t n_touches) {
  const std::shared_ptr<void> kept(kernel->self, kernel->forget);
  return on_stream("fake_cuda_launch", handle, [&](Context& context, Stream& stream) {
    if (stream.device() != context.device) return CUresult::kInvalidHandle;
    Launch launch{.call = "fake_cuda_launch", .detail = kernel->name};
    for (const CallerTouch& each : std::span(touches, n_touches)) {
      launch.touches.push_back({reinterpret_cast<const std::byte*>(each.begin), each.n_bytes, each.writes});
    }
    launch.prepare = [kept, begin = kernel->begin, run = kernel->run]() -> Launch::Run {
      return [run, begun = begin(kept.get())](const VectorClock&) {
        run(begun);
        return CUresult::kSuccess;
      };
    };
    return stream.enqueue(std::move(launch));
  });
}

bool fake_cuda_is_over() { return workers().are_over(); }

CUresult fake_cuda_current_uuid(CUuuid* uuid) {
  const Context* const context = current_context();
  return context == nullptr ? CUresult::kInvalidContext : cuDeviceGetUuid_v2(uuid, context->device);
}

}  // namespace ciranda::fakes
