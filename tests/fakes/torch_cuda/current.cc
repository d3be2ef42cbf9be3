#include "current.hpp"

#include <map>

namespace ciranda::fakes::torch_cuda {
namespace {

thread_local int device_here = 0;
thread_local std::map<int, CUstream> streams_here;

}  // namespace

int current_device() { return device_here; }

void set_current_device(int device) {
  use_context(device);
  device_here = device;
}

c10::Stream to_stream(int device, CUstream handle) {
  const c10::Device of(c10::kCUDA, static_cast<c10::DeviceIndex>(device));
  return c10::Stream(c10::Stream::UNSAFE, of, static_cast<c10::StreamId>(reinterpret_cast<std::uintptr_t>(handle)));
}

CUstream handle_of(const c10::Stream& stream) {
  return reinterpret_cast<CUstream>(static_cast<std::uintptr_t>(stream.id()));
}

CUstream current_stream(int device) {
  const auto at = streams_here.find(device);
  return at == streams_here.end() ? nullptr : at->second;
}

void set_current_stream(int device, CUstream stream) { streams_here[device] = stream; }

CUstream make_stream(int device, int priority) {
  CUstream stream = nullptr;
  use_context(device);
  check(driver().create_stream(&stream, cuda::kStreamNonBlocking, priority), "cuStreamCreateWithPriority");
  return stream;
}

void synchronize_device(int device) {
  use_context(device);
  check(driver().synchronize(), "cuCtxSynchronize");
}

}  // namespace ciranda::fakes::torch_cuda
