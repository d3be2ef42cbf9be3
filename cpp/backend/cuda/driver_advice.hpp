// What a user can do about an error of the CUDA driver, where the cause is known. Empty: nothing that we know.
// Called by Driver; pure.
#pragma once

#include <array>
#include <string_view>

#include "backend/cuda/driver_api.hpp"

namespace ciranda::cuda {

struct Advice {
  CUresult error;
  std::string_view text;
};

inline constexpr std::string_view kKernelFailed =
    "a kernel has failed, perhaps one of the program's own: compute-sanitizer says which. This process cannot use the "
    "GPU any more";

inline constexpr auto kAdvice = std::to_array<Advice>({
    {CUresult::kOutOfMemory, "free GPU memory; nvidia-smi lists the processes that use it"},
    {CUresult::kNotInitialized,
     "CUDA does not survive a fork: start processes that use it by spawn, or before its use"},
    {CUresult::kStubLibrary, "libcuda.so.1 is the stub for linking: take it out of LD_LIBRARY_PATH"},
    {CUresult::kNoDevice, "see that nvidia-smi lists a GPU and CUDA_VISIBLE_DEVICES does not hide it"},
    {CUresult::kDeviceUnavailable, "another process has the GPU for itself (its compute mode, nvidia-smi -q)"},
    {CUresult::kSystemNotReady, "start the services that the GPU needs (nvidia-fabricmanager, the MPS daemon)"},
    {CUresult::kSystemDriverMismatch,
     "libcuda.so.1 and the kernel module differ in version: reload the module, or reboot"},
    {CUresult::kCompatNotSupportedOnDevice,
     "the compatibility package does not serve this GPU: update the driver itself"},
    {CUresult::kMpsConnectionFailed, "the MPS daemon does not answer: start it, or unset CUDA_MPS_PIPE_DIRECTORY"},
    {CUresult::kEccUncorrectable, "the GPU's memory is faulty: see nvidia-smi -q and the kernel's log (dmesg)"},
    {CUresult::kIllegalAddress, kKernelFailed},
    {CUresult::kAssert, kKernelFailed},
    {CUresult::kIllegalInstruction, kKernelFailed},
    {CUresult::kMisalignedAddress, kKernelFailed},
    {CUresult::kInvalidAddressSpace, kKernelFailed},
    {CUresult::kInvalidPc, kKernelFailed},
    {CUresult::kLaunchFailed, kKernelFailed},
    {CUresult::kUnknown, "see nvidia-smi and the kernel's log (dmesg), and that nvidia_uvm is loaded"},
});

constexpr std::string_view advice_on(CUresult error) {
  for (const Advice& each : kAdvice) {
    if (each.error == error) return each.text;
  }
  return {};
}

}  // namespace ciranda::cuda
