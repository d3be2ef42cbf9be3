// The driver, its devices, and their contexts.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "address_map.hpp"
#include "call.hpp"
#include "cuda.hpp"
#include "exports.hpp"
#include "host_faults.hpp"
#include "twins.hpp"

namespace ciranda::fakes {
namespace {

std::atomic<pid_t> initialized_in{0};

std::byte* in_kernel(const void* address) { return address_map().in_kernel(address); }

// Calls function(the number of the GPU in its host).
template <typename Function>
CUresult of_gpu(const char* call, CUdevice device, const Function& function) {
  return initialized(call, [&] {
    const auto now = settings();
    const auto number = static_cast<std::size_t>(device);
    return device < 0 || number >= now->gpus.size() ? CUresult::kInvalidDevice : function(now->gpus[number]);
  });
}

struct Attribute {
  CUdevice_attribute name;
  int value;
};

constexpr Attribute kAttributes[] = {
    {CUdevice_attribute::kMaxThreadsPerBlock, 1024},
    {CUdevice_attribute::kMaxGridDimX, 0x7fffffff},
    {CUdevice_attribute::kMultiprocessorCount, 8},
    {CUdevice_attribute::kIntegrated, 0},
    {CUdevice_attribute::kCanMapHostMemory, 1},
    {CUdevice_attribute::kComputeMode, 0},
    {CUdevice_attribute::kPciDeviceId, 0},
    {CUdevice_attribute::kPciDomainId, 0},
    {CUdevice_attribute::kUnifiedAddressing, 1},
    {CUdevice_attribute::kComputeCapabilityMajor, 9},
    {CUdevice_attribute::kComputeCapabilityMinor, 0},
    {CUdevice_attribute::kStreamPrioritiesSupported, 1},
    {CUdevice_attribute::kCanUseHostPointerForRegisteredMem, 1},
    {CUdevice_attribute::kHostRegisterSupported, 1},
    {CUdevice_attribute::kMemoryPoolsSupported, 1},
    {CUdevice_attribute::kIpcEventSupported, 1},
    {CUdevice_attribute::kHostNumaId, 0},
};

}  // namespace

bool is_initialized() { return initialized_in == getpid(); }

CUresult cuInit(unsigned flags) {
  return counted("cuInit", [&] {
    const auto now = settings();
    if (now->init != CUresult::kSuccess) return now->init;
    if (flags != 0) return CUresult::kInvalidValue;
    if (now->gpus.empty()) return CUresult::kNoDevice;
    const pid_t before = initialized_in;
    if (before == getpid()) return CUresult::kSuccess;
    if (before != 0) return CUresult::kNotInitialized;  // forked from a process that uses CUDA
    set_translation(in_kernel);
    explain_host_faults();
    initialized_in = getpid();
    return CUresult::kSuccess;
  });
}

CUresult cuDriverGetVersion(int* version) {
  return counted("cuDriverGetVersion", [&] {
    *version = settings()->version;
    return CUresult::kSuccess;
  });
}

CUresult cuDeviceGetCount(int* count) {
  return initialized("cuDeviceGetCount", [&] {
    *count = static_cast<int>(settings()->gpus.size());
    return CUresult::kSuccess;
  });
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return of_gpu("cuDeviceGet", ordinal, [&](int) {
    *device = ordinal;
    return CUresult::kSuccess;
  });
}

CUresult cuDeviceGetName(char* name, int n_bytes, CUdevice device) {
  return of_gpu("cuDeviceGetName", device, [&](int gpu) {
    std::snprintf(name, static_cast<std::size_t>(n_bytes), "Fake GPU %d", gpu);
    return CUresult::kSuccess;
  });
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  return of_gpu("cuDeviceGetUuid", device, [&](int gpu) {
    uuid->bytes.fill('\x5f');
    uuid->bytes[3] = static_cast<char>(gpu);  // which GPU it is stands in the part that messages show
    return CUresult::kSuccess;
  });
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return of_gpu("cuDeviceGetAttribute", device, [&](int gpu) {
    if (attribute == CUdevice_attribute::kPciBusId) {
      *value = gpu + 1;
      return CUresult::kSuccess;
    }
    const auto* const found = std::find_if(std::begin(kAttributes), std::end(kAttributes),
                                           [&](const Attribute& each) { return each.name == attribute; });
    if (found == std::end(kAttributes)) return CUresult::kInvalidValue;
    *value = found->value;
    return CUresult::kSuccess;
  });
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  return of_gpu("cuDeviceCanAccessPeer", std::max(device, peer), [&](int) {
    *can = device == peer ? 0 : 1;
    return CUresult::kSuccess;
  });
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return of_gpu("cuDevicePrimaryCtxRetain", device, [&](int) {
    *context = retain_primary(device);
    return CUresult::kSuccess;
  });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return of_gpu("cuDevicePrimaryCtxRelease", device, [&](int) { return release_primary(device); });
}

CUresult cuCtxSetCurrent(CUcontext context) {
  return initialized("cuCtxSetCurrent", [&] { return set_current(context); });
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  return initialized("cuCtxGetCurrent", [&] {
    *context = current_handle();
    return CUresult::kSuccess;
  });
}

void fake_cuda_set(const char* name, const char* value) {
  if (value == nullptr ? unsetenv(name) != 0 : setenv(name, value, 1) != 0) report("fake_cuda_set failed");
  reread_settings();
}

std::uint64_t fake_cuda_n_calls() { return n_calls(); }
std::uint64_t fake_cuda_n_calls_of(const char* name) { return n_calls_of(name); }

}  // namespace ciranda::fakes
