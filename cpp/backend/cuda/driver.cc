#include "backend/cuda/driver.hpp"

#include <dlfcn.h>

#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "backend/cuda/driver_advice.hpp"

namespace ciranda::cuda {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";
constexpr const char* kNeeded = "Tensors on a GPU need NVIDIA driver 525 (CUDA 12.0) or newer";

struct Wanted {
  const char* name;      // for cuGetProcAddress
  const char* exported;  // for dlsym: with the version of its signature
  void* where;           // a pointer to a function of the driver's type
};

template <typename Function>
Wanted wanted(const char* name, const char* exported, Function*& where) {
  return {name, exported, &where};
}

template <typename Function>
Wanted wanted(const char* name, Function*& where) {
  return wanted(name, name, where);
}

auto all_of(DriverFunctions& to) {
  return std::to_array<Wanted>({
      wanted("cuInit", to.cuInit),
      wanted("cuDriverGetVersion", to.cuDriverGetVersion),
      wanted("cuGetErrorName", to.cuGetErrorName),
      wanted("cuGetErrorString", to.cuGetErrorString),
      wanted("cuDeviceGetCount", to.cuDeviceGetCount),
      wanted("cuDeviceGet", to.cuDeviceGet),
      wanted("cuDeviceGetUuid", "cuDeviceGetUuid_v2", to.cuDeviceGetUuid),
      wanted("cuDeviceGetAttribute", to.cuDeviceGetAttribute),
      wanted("cuDevicePrimaryCtxRetain", to.cuDevicePrimaryCtxRetain),
      wanted("cuCtxSetCurrent", to.cuCtxSetCurrent),
      wanted("cuCtxGetCurrent", to.cuCtxGetCurrent),
      wanted("cuMemAlloc", "cuMemAlloc_v2", to.cuMemAlloc),
      wanted("cuMemFree", "cuMemFree_v2", to.cuMemFree),
      wanted("cuMemAllocAsync", to.cuMemAllocAsync),
      wanted("cuMemPoolCreate", to.cuMemPoolCreate),
      wanted("cuMemPoolSetAttribute", to.cuMemPoolSetAttribute),
      wanted("cuMemAllocFromPoolAsync", to.cuMemAllocFromPoolAsync),
      wanted("cuMemFreeAsync", to.cuMemFreeAsync),
      wanted("cuMemHostAlloc", to.cuMemHostAlloc),
      wanted("cuMemFreeHost", to.cuMemFreeHost),
      wanted("cuIpcGetMemHandle", to.cuIpcGetMemHandle),
      wanted("cuIpcOpenMemHandle", "cuIpcOpenMemHandle_v2", to.cuIpcOpenMemHandle),
      wanted("cuIpcCloseMemHandle", to.cuIpcCloseMemHandle),
      wanted("cuMemcpyAsync", to.cuMemcpyAsync),
      wanted("cuMemcpyHtoDAsync", "cuMemcpyHtoDAsync_v2", to.cuMemcpyHtoDAsync),
      wanted("cuMemcpyDtoHAsync", "cuMemcpyDtoHAsync_v2", to.cuMemcpyDtoHAsync),
      wanted("cuMemsetD8Async", to.cuMemsetD8Async),
      wanted("cuStreamCreateWithPriority", to.cuStreamCreateWithPriority),
      wanted("cuStreamWaitEvent", to.cuStreamWaitEvent),
      wanted("cuStreamGetCaptureInfo", "cuStreamGetCaptureInfo_v2", to.cuStreamGetCaptureInfo),
      wanted("cuThreadExchangeStreamCaptureMode", to.cuThreadExchangeStreamCaptureMode),
      wanted("cuUserObjectCreate", to.cuUserObjectCreate),
      wanted("cuUserObjectRelease", to.cuUserObjectRelease),
      wanted("cuGraphRetainUserObject", to.cuGraphRetainUserObject),
      wanted("cuStreamSynchronize", to.cuStreamSynchronize),
      wanted("cuEventCreate", to.cuEventCreate),
      wanted("cuEventRecord", to.cuEventRecord),
      wanted("cuEventQuery", to.cuEventQuery),
      wanted("cuModuleLoadData", to.cuModuleLoadData),
      wanted("cuModuleGetFunction", to.cuModuleGetFunction),
      wanted("cuLaunchKernel", to.cuLaunchKernel),
  });
}
using All = decltype(all_of(std::declval<DriverFunctions&>()));
static_assert(std::tuple_size_v<All> * sizeof(void*) == sizeof(DriverFunctions), "a row for each function");

std::string to_text(int version) { return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10); }

template <typename Function>
Function exported(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

void* find(const Wanted& function, void* library, GetProcAddress search) {
  if (search == nullptr) return dlsym(library, function.exported);
  void* found = nullptr;
  int why_not = 0;
  const CUresult outcome = search(function.name, &found, kOldestVersion, kProcAddressLegacyStream, &why_not);
  return outcome == CUresult::kSuccess ? found : nullptr;
}

Status not_there(std::string_view loader) {
  return Status::invalid_argument("the NVIDIA driver was not found: " + std::string(loader) + ". " + kNeeded +
                                  ": install it; start a container with the NVIDIA container toolkit (--gpus all)");
}

// Every driver has cuDriverGetVersion, which works before cuInit too. So an old driver is reported as old, and not as
// one that lacks functions.
Result<int> version_of(void* library) {
  const auto get_version = exported<decltype(DriverFunctions::cuDriverGetVersion)>(library, "cuDriverGetVersion");
  int version = 0;
  if (get_version == nullptr || get_version(&version) != CUresult::kSuccess) {
    return Status::invalid_argument(std::string(kLibrary) + " tells no version (cuDriverGetVersion): it is damaged, " +
                                    "or no NVIDIA driver. " + kNeeded + ": install it again");
  }
  if (version < kOldestVersion) {
    return Status::invalid_argument("the NVIDIA driver is too old: it supports CUDA " + to_text(version) + ". " +
                                    kNeeded + ": update it");
  }
  return version;
}

Result<DriverFunctions> find_all(void* library, int version) {
  DriverFunctions functions{};
  const auto search = exported<GetProcAddress>(library, "cuGetProcAddress_v2");
  std::string missing;
  for (const Wanted& each : all_of(functions)) {
    void* const found = find(each, library, search);
    std::memcpy(each.where, &found, sizeof found);  // POSIX: a pointer to a function fits
    if (found == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(each.name);
  }
  if (missing.empty()) return functions;
  return Status::invalid_argument("the NVIDIA driver for CUDA " + to_text(version) + " (" + kLibrary + ") has no " +
                                  missing + ". " + kNeeded + ", complete: install it again; see that LD_LIBRARY_PATH" +
                                  " leads to no other " + kLibrary);
}

}  // namespace

Result<const Driver*> Driver::load() {
  static const Result<Driver> opened = open();
  if (!opened.ok()) return opened.status();
  return &opened.value();
}

Result<Driver> Driver::open() {
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return not_there(dlerror());
  Result<int> version = version_of(library);
  if (!version.ok()) return version.status();
  Result<DriverFunctions> functions = find_all(library, version.value());
  if (!functions.ok()) return functions.status();
  const Driver driver(functions.value(), version.value());
  if (const CUresult outcome = driver.cuInit(0); outcome != CUresult::kSuccess) {
    return Status::invalid_argument(driver.check(outcome, "cuInit").message() + " [the driver supports CUDA " +
                                    to_text(driver.version_) + "]");
  }
  return driver;
}

Status Driver::check(CUresult outcome, std::string_view call, std::string_view gpu) const {
  if (outcome == CUresult::kSuccess) return Status::ok_status();
  const char* name = nullptr;
  const char* text = nullptr;
  if (cuGetErrorName(outcome, &name) != CUresult::kSuccess || name == nullptr) name = "an error unknown to the driver";
  if (cuGetErrorString(outcome, &text) != CUresult::kSuccess || text == nullptr) text = "no text";
  std::string message(call);
  if (!gpu.empty()) message += " on " + std::string(gpu);
  message += " failed: " + std::string(name) + " (" + std::to_string(static_cast<int>(outcome)) + ", " + text + ")";
  if (const std::string_view advice = advice_on(outcome); !advice.empty()) message += ": " + std::string(advice);
  return Status::internal(std::move(message));
}

}  // namespace ciranda::cuda
