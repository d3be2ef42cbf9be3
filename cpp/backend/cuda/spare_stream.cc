#include "backend/cuda/spare_stream.hpp"

#include <memory>

#include "backend/cuda/kept.hpp"
#include "backend/cuda/stream_capture.hpp"

namespace ciranda::cuda {
namespace {

struct SpareStream {
  const Gpu& gpu;
  CUstream handle;
};

}  // namespace

Result<CUstream> take_stream(Gpu& gpu) {
  const GpuContext& context = gpu.parts().context;
  // A capture that was spoilt may drop what it has before our stream has left it.
  const auto is_free = [&](const SpareStream& one) {
    return &one.gpu == &gpu && !is_capturing(context.driver, one.handle);
  };
  if (const std::unique_ptr<SpareStream> spare(Kept<SpareStream>::take(is_free)); spare != nullptr)
    return spare->handle;
  CUstream made = nullptr;
  const CUresult outcome = context.driver.cuStreamCreateWithPriority(&made, kStreamNonBlocking, 0);
  Status status = context.check(outcome, "cuStreamCreateWithPriority");
  return status.ok() ? Result<CUstream>(made) : status;
}

void give_back_stream(const Gpu& gpu, CUstream stream) { Kept<SpareStream>::give_back(new SpareStream{gpu, stream}); }

}  // namespace ciranda::cuda
