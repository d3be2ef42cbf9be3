// Names and texts of errors. Never counted: a test that makes the k-th call fail means a call that does something.

#include "exports.hpp"

namespace ciranda::fakes {
namespace {

struct Text {
  CUresult error;
  const char* name;
  const char* text;
};

constexpr Text kTexts[] = {
    {CUresult::kSuccess, "CUDA_SUCCESS", "no error"},
    {CUresult::kInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUresult::kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUresult::kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUresult::kStubLibrary, "CUDA_ERROR_STUB_LIBRARY", "the library is a stub"},
    {CUresult::kNoDevice, "CUDA_ERROR_NO_DEVICE", "no device is detected"},
    {CUresult::kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUresult::kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUresult::kMapFailed, "CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed"},
    {CUresult::kNoBinaryForGpu, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for the device"},
    {CUresult::kEccUncorrectable, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {CUresult::kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUresult::kNotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUresult::kNotReady, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUresult::kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {CUresult::kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUresult::kNotSupported, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUresult::kSystemDriverMismatch, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "unsupported display driver combination"},
    {CUresult::kUnknown, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

CUresult put(const char** to, CUresult error, const char* Text::*part) {
  for (const Text& each : kTexts) {
    if (each.error == error) {
      *to = each.*part;
      return CUresult::kSuccess;
    }
  }
  *to = nullptr;
  return CUresult::kInvalidValue;
}

}  // namespace

CUresult cuGetErrorName(CUresult error, const char** name) { return put(name, error, &Text::name); }
CUresult cuGetErrorString(CUresult error, const char** text) { return put(text, error, &Text::text); }

}  // namespace ciranda::fakes
