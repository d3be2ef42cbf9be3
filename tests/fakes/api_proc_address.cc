// cuGetProcAddress. Never counted: it does nothing that a program waits for.
#include <array>
#include <string_view>

#include "exports.hpp"
#include "settings.hpp"

namespace ciranda::fakes {
namespace {

// Has a function for each that the engine declares, of the type that it declares.
constexpr cuda::DriverFunctions kFunctions{
    .cuInit = cuInit,
    .cuDriverGetVersion = cuDriverGetVersion,
    .cuGetErrorName = cuGetErrorName,
    .cuGetErrorString = cuGetErrorString,
    .cuDeviceGetCount = cuDeviceGetCount,
    .cuDeviceGet = cuDeviceGet,
    .cuDeviceGetUuid = cuDeviceGetUuid_v2,
    .cuDeviceGetAttribute = cuDeviceGetAttribute,
    .cuDevicePrimaryCtxRetain = cuDevicePrimaryCtxRetain,
    .cuCtxSetCurrent = cuCtxSetCurrent,
    .cuCtxGetCurrent = cuCtxGetCurrent,
    .cuMemAlloc = cuMemAlloc_v2,
    .cuMemFree = cuMemFree_v2,
    .cuMemAllocAsync = cuMemAllocAsync,
    .cuMemPoolCreate = cuMemPoolCreate,
    .cuMemPoolSetAttribute = cuMemPoolSetAttribute,
    .cuMemAllocFromPoolAsync = cuMemAllocFromPoolAsync,
    .cuMemFreeAsync = cuMemFreeAsync,
    .cuMemHostAlloc = cuMemHostAlloc,
    .cuMemFreeHost = cuMemFreeHost,
    .cuIpcGetMemHandle = cuIpcGetMemHandle,
    .cuIpcOpenMemHandle = cuIpcOpenMemHandle_v2,
    .cuIpcCloseMemHandle = cuIpcCloseMemHandle,
    .cuMemcpyAsync = cuMemcpyAsync,
    .cuMemcpyHtoDAsync = cuMemcpyHtoDAsync_v2,
    .cuMemcpyDtoHAsync = cuMemcpyDtoHAsync_v2,
    .cuMemsetD8Async = cuMemsetD8Async,
    .cuStreamCreateWithPriority = cuStreamCreateWithPriority,
    .cuStreamWaitEvent = cuStreamWaitEvent,
    .cuStreamGetCaptureInfo = cuStreamGetCaptureInfo_v2,
    .cuThreadExchangeStreamCaptureMode = cuThreadExchangeStreamCaptureMode,
    .cuUserObjectCreate = cuUserObjectCreate,
    .cuUserObjectRelease = cuUserObjectRelease,
    .cuGraphRetainUserObject = cuGraphRetainUserObject,
    .cuStreamSynchronize = cuStreamSynchronize,
    .cuEventCreate = cuEventCreate,
    .cuEventRecord = cuEventRecord,
    .cuEventQuery = cuEventQuery,
    .cuModuleLoadData = cuModuleLoadData,
    .cuModuleGetFunction = cuModuleGetFunction,
    .cuLaunchKernel = cuLaunchKernel,
};

struct Named {
  std::string_view name;
  void* function;
};

template <typename Function>
Named named(std::string_view name, Function* function) {
  return {name, reinterpret_cast<void*>(function)};
}

const auto& all() {
  static const auto kAll = std::to_array<Named>({
      named("cuInit", kFunctions.cuInit),
      named("cuDriverGetVersion", kFunctions.cuDriverGetVersion),
      named("cuGetErrorName", kFunctions.cuGetErrorName),
      named("cuGetErrorString", kFunctions.cuGetErrorString),
      named("cuDeviceGetCount", kFunctions.cuDeviceGetCount),
      named("cuDeviceGet", kFunctions.cuDeviceGet),
      named("cuDeviceGetUuid", kFunctions.cuDeviceGetUuid),
      named("cuDeviceGetAttribute", kFunctions.cuDeviceGetAttribute),
      named("cuDevicePrimaryCtxRetain", kFunctions.cuDevicePrimaryCtxRetain),
      named("cuCtxSetCurrent", kFunctions.cuCtxSetCurrent),
      named("cuCtxGetCurrent", kFunctions.cuCtxGetCurrent),
      named("cuMemAlloc", kFunctions.cuMemAlloc),
      named("cuMemFree", kFunctions.cuMemFree),
      named("cuMemAllocAsync", kFunctions.cuMemAllocAsync),
      named("cuMemPoolCreate", kFunctions.cuMemPoolCreate),
      named("cuMemPoolSetAttribute", kFunctions.cuMemPoolSetAttribute),
      named("cuMemAllocFromPoolAsync", kFunctions.cuMemAllocFromPoolAsync),
      named("cuMemFreeAsync", kFunctions.cuMemFreeAsync),
      named("cuMemHostAlloc", kFunctions.cuMemHostAlloc),
      named("cuMemFreeHost", kFunctions.cuMemFreeHost),
      named("cuIpcGetMemHandle", kFunctions.cuIpcGetMemHandle),
      named("cuIpcOpenMemHandle", kFunctions.cuIpcOpenMemHandle),
      named("cuIpcCloseMemHandle", kFunctions.cuIpcCloseMemHandle),
      named("cuMemcpyAsync", kFunctions.cuMemcpyAsync),
      named("cuMemcpyHtoDAsync", kFunctions.cuMemcpyHtoDAsync),
      named("cuMemcpyDtoHAsync", kFunctions.cuMemcpyDtoHAsync),
      named("cuMemsetD8Async", kFunctions.cuMemsetD8Async),
      named("cuStreamCreateWithPriority", kFunctions.cuStreamCreateWithPriority),
      named("cuStreamWaitEvent", kFunctions.cuStreamWaitEvent),
      named("cuStreamGetCaptureInfo", kFunctions.cuStreamGetCaptureInfo),
      named("cuThreadExchangeStreamCaptureMode", kFunctions.cuThreadExchangeStreamCaptureMode),
      named("cuUserObjectCreate", kFunctions.cuUserObjectCreate),
      named("cuUserObjectRelease", kFunctions.cuUserObjectRelease),
      named("cuGraphRetainUserObject", kFunctions.cuGraphRetainUserObject),
      named("cuStreamSynchronize", kFunctions.cuStreamSynchronize),
      named("cuEventCreate", kFunctions.cuEventCreate),
      named("cuEventRecord", kFunctions.cuEventRecord),
      named("cuEventQuery", kFunctions.cuEventQuery),
      named("cuModuleLoadData", kFunctions.cuModuleLoadData),
      named("cuModuleGetFunction", kFunctions.cuModuleGetFunction),
      named("cuLaunchKernel", kFunctions.cuLaunchKernel),
  });
  return kAll;
}

constexpr int kNotThere = 1;  // CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND
constexpr int kIsNewer = 2;   // CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT

}  // namespace

CUresult cuGetProcAddress_v2(const char* name, void** function, int version, std::uint64_t, int* status) {
  *function = nullptr;
  for (const Named& each : all()) {
    if (each.name == name && !settings()->missing.contains(each.name)) *function = each.function;
  }
  if (version < cuda::kOldestVersion) *function = nullptr;
  if (status != nullptr) *status = version < cuda::kOldestVersion ? kIsNewer : *function == nullptr ? kNotThere : 0;
  return *function == nullptr ? CUresult::kNotFound : CUresult::kSuccess;
}

}  // namespace ciranda::fakes
