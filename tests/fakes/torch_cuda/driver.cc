#include "driver.hpp"

#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <vector>

namespace ciranda::fakes::torch_cuda {
namespace {

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  TORCH_CHECK(function != nullptr, "libcuda.so.1 is not the fake of these sources: it has no ", name);
}

Driver load() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  TORCH_CHECK(library != nullptr, dlerror());
  Driver found{};
  find(library, "fake_cuda_begin_kernel", found.begin_kernel);
  find(library, "fake_cuda_end_kernel", found.end_kernel);
  find(library, "fake_cuda_in_kernel", found.in_kernel);
  find(library, "cuInit", found.init);
  find(library, "cuGetErrorName", found.error_name);
  find(library, "cuDeviceGetCount", found.device_count);
  find(library, "cuDevicePrimaryCtxRetain", found.retain_context);
  find(library, "cuCtxSetCurrent", found.set_context);
  find(library, "cuCtxGetCurrent", found.context);
  find(library, "cuCtxSynchronize", found.synchronize);
  find(library, "cuMemAlloc_v2", found.allocate);
  find(library, "cuMemFree_v2", found.free);
  find(library, "cuMemAllocAsync", found.allocate_from_pool);
  find(library, "cuMemFreeAsync", found.free_to_pool);
  find(library, "cuMemHostAlloc", found.allocate_pinned);
  find(library, "cuMemFreeHost", found.free_pinned);
  find(library, "cuMemcpyAsync", found.copy);
  find(library, "cuStreamCreateWithPriority", found.create_stream);
  find(library, "cuStreamWaitEvent", found.wait_event);
  find(library, "cuStreamQuery", found.query_stream);
  find(library, "cuStreamSynchronize", found.synchronize_stream);
  find(library, "cuEventCreate", found.create_event);
  find(library, "cuEventRecord", found.record_event);
  find(library, "cuEventQuery", found.query_event);
  find(library, "cuEventDestroy_v2", found.destroy_event);
  const CUresult initialized = found.init(0);
  TORCH_CHECK(initialized == CUresult::kSuccess, "cuInit: error ", static_cast<int>(initialized));
  return found;
}

// Of each device; they are never released, as those of torch are not.
const std::vector<CUcontext>& contexts() {
  static const auto kContexts = [] {
    int count = 0;
    check(driver().device_count(&count), "cuDeviceGetCount");
    std::vector<CUcontext> retained(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) check(driver().retain_context(&retained[i], i), "cuDevicePrimaryCtxRetain");
    return retained;
  }();
  return kContexts;
}

}  // namespace

const Driver& driver() {
  static const Driver kDriver = load();
  return kDriver;
}

void check(CUresult result, const char* call) {
  if (result == CUresult::kSuccess) return;
  const char* name = "?";
  driver().error_name(result, &name);
  TORCH_CHECK(false, "CUDA error: ", call, ": ", name);
}

int n_devices() { return static_cast<int>(contexts().size()); }

void use_context(int device) {
  const CUcontext wanted = contexts().at(static_cast<std::size_t>(device));
  CUcontext now = nullptr;
  check(driver().context(&now), "cuCtxGetCurrent");
  if (now != wanted) check(driver().set_context(wanted), "cuCtxSetCurrent");
}

}  // namespace ciranda::fakes::torch_cuda
