// The part of the CUDA driver API that Ciranda calls, in declarations of its own: no CUDA header is needed to build,
// and no CUDA library to link. Types and functions have the driver's names; values and signatures are those of
// CUDA 12.0.
//
// DriverFunctions is filled by Driver::load (driver.hpp). Every function may be called by any thread. Those on memory,
// streams, events and kernels need a current context (cuCtxSetCurrent), which is a property of the thread.
//
// Used by Driver, driver_advice.hpp, nccl_api.hpp and UsedGpu.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ciranda::cuda {

// Of cuDriverGetVersion: 1000 * major + 10 * minor. Drivers from 525 on have it, and every function below.
inline constexpr int kOldestVersion = 12000;

enum class CUresult : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kDeinitialized = 4,
  kStubLibrary = 34,
  kDeviceUnavailable = 46,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kMapFailed = 205,
  kNoBinaryForGpu = 209,
  kEccUncorrectable = 214,
  kPeerAccessUnsupported = 217,
  kInvalidPtx = 218,
  kNvlinkUncorrectable = 220,
  kUnsupportedPtxVersion = 222,
  kOperatingSystem = 304,
  kInvalidHandle = 400,
  kIllegalState = 401,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kLaunchOutOfResources = 701,
  kLaunchTimeout = 702,
  kPeerAccessNotEnabled = 705,
  kContextIsDestroyed = 709,
  kAssert = 710,
  kHostMemoryAlreadyRegistered = 712,
  kHostMemoryNotRegistered = 713,
  kHardwareStackError = 714,
  kIllegalInstruction = 715,
  kMisalignedAddress = 716,
  kInvalidAddressSpace = 717,
  kInvalidPc = 718,
  kLaunchFailed = 719,
  kNotPermitted = 800,
  kNotSupported = 801,
  kSystemNotReady = 802,
  kSystemDriverMismatch = 803,
  kCompatNotSupportedOnDevice = 804,
  kMpsConnectionFailed = 805,
  kStreamCaptureUnsupported = 900,
  kStreamCaptureInvalidated = 901,
  kStreamCaptureMerge = 902,
  kStreamCaptureUnjoined = 904,
  kStreamCaptureIsolation = 905,
  kStreamCaptureImplicit = 906,
  kCapturedEvent = 907,
  kUnknown = 999,
};

using CUdevice = int;
using CUdeviceptr = std::uint64_t;
using CUcontext = struct CUctx_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUmemoryPool = struct CUmemPoolHandle_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphNode = struct CUgraphNode_st*;
using CUuserObject = struct CUuserObject_st*;
using CUhostFn = void (*)(void* object);  // must not call the driver

struct CUuuid {
  std::array<char, 16> bytes;
};

struct CUipcMemHandle {
  std::array<char, 64> reserved;
};

enum class CUmemAllocationType : int { kPinned = 1 };
enum class CUmemLocationType : int { kDevice = 1 };
enum class CUmemPool_attribute : int { kReleaseThreshold = 4 };  // std::uint64_t: free bytes that it keeps

struct CUmemLocation {
  CUmemLocationType type;
  int id;
};

struct CUmemPoolProps {
  CUmemAllocationType type;
  int handle_types;  // 0: other processes cannot open its memory
  CUmemLocation location;
  void* security_attributes;  // Windows'
  std::array<unsigned char, 64> reserved;
};

enum class CUdevice_attribute : int {
  kMaxThreadsPerBlock = 1,
  kMaxGridDimX = 5,
  kMultiprocessorCount = 16,
  kIntegrated = 18,
  kCanMapHostMemory = 19,
  kComputeMode = 20,
  kPciBusId = 33,
  kPciDeviceId = 34,
  kUnifiedAddressing = 41,
  kPciDomainId = 50,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kStreamPrioritiesSupported = 78,
  kCanUseHostPointerForRegisteredMem = 91,
  kHostRegisterSupported = 99,
  kMemoryPoolsSupported = 115,
  kIpcEventSupported = 125,
  kHostNumaId = 134,  // of CUDA 12.2; earlier drivers answer kInvalidValue
};

// Of a stream whose work is captured into a graph, and is not done now.
enum class CUstreamCaptureStatus : int { kNone = 0, kActive = 1, kInvalidated = 2 };

// What a thread may call while another one captures: kGlobal nothing that could spoil it, kRelaxed everything.
enum class CUstreamCaptureMode : int { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };

enum class CUpointer_attribute : int {
  kContext = 1,              // CUcontext
  kMemoryType = 2,           // CUmemorytype
  kDevicePointer = 3,        // CUdeviceptr
  kHostPointer = 4,          // void*
  kBufferId = 7,             // std::uint64_t, of an allocation, unique in the process
  kIsManaged = 8,            // unsigned
  kDeviceOrdinal = 9,        // int
  kIsLegacyIpcCapable = 10,  // unsigned: cuIpcGetMemHandle works
  kRangeStartAddr = 11,      // CUdeviceptr
  kRangeSize = 12,           // std::size_t
  kMapped = 13,              // unsigned
};

// Zero: memory that the driver does not know.
enum class CUmemorytype : unsigned { kUnknown = 0, kHost = 1, kDevice = 2, kArray = 3, kUnified = 4 };

inline constexpr unsigned kStreamDefault = 0;      // ordered with the legacy default stream
inline constexpr unsigned kStreamNonBlocking = 1;  // not ordered with it
inline constexpr unsigned kEventDefault = 0;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kMemHostPortable = 1;   // of cuMemHostAlloc and cuMemHostRegister: pinned for all contexts
inline constexpr unsigned kMemHostDeviceMap = 2;  // of both: kernels may access it
inline constexpr unsigned kIpcLazyPeerAccess = 1;
inline constexpr unsigned kUserObjectNoDestructorSync = 1;  // nobody waits for the function that destroys it
inline constexpr unsigned kGraphUserObjectMove = 1;         // the caller's reference becomes the graph's
inline constexpr unsigned kWriteValueDefault = 0;  // after all work of the stream queued before, for every observer

// Handles of the default streams; a null stream is the legacy one too.
inline constexpr std::uintptr_t kStreamLegacy = 1;
inline constexpr std::uintptr_t kStreamPerThread = 2;

// All are called: a driver that lacks one is refused.
struct DriverFunctions {
  CUresult (*cuInit)(unsigned flags);
  CUresult (*cuDriverGetVersion)(int* version);
  CUresult (*cuGetErrorName)(CUresult error, const char** name);
  CUresult (*cuGetErrorString)(CUresult error, const char** text);

  CUresult (*cuDeviceGetCount)(int* count);
  CUresult (*cuDeviceGet)(CUdevice* device, int ordinal);
  CUresult (*cuDeviceGetUuid)(CUuuid* uuid, CUdevice device);  // under MIG that of the instance
  CUresult (*cuDeviceGetAttribute)(int* value, CUdevice_attribute attribute, CUdevice device);

  CUresult (*cuDevicePrimaryCtxRetain)(CUcontext* context, CUdevice device);
  CUresult (*cuCtxSetCurrent)(CUcontext context);
  CUresult (*cuCtxGetCurrent)(CUcontext* context);

  CUresult (*cuMemAlloc)(CUdeviceptr* address, std::size_t n_bytes);
  CUresult (*cuMemFree)(CUdeviceptr address);
  CUresult (*cuMemAllocAsync)(CUdeviceptr* address, std::size_t n_bytes, CUstream stream);
  CUresult (*cuMemPoolCreate)(CUmemoryPool* pool, const CUmemPoolProps* properties);
  CUresult (*cuMemPoolSetAttribute)(CUmemoryPool pool, CUmemPool_attribute attribute, void* value);
  CUresult (*cuMemAllocFromPoolAsync)(CUdeviceptr* address, std::size_t n_bytes, CUmemoryPool pool, CUstream stream);
  CUresult (*cuMemFreeAsync)(CUdeviceptr address, CUstream stream);
  CUresult (*cuMemHostAlloc)(void** address, std::size_t n_bytes, unsigned flags);
  CUresult (*cuMemFreeHost)(void* address);

  CUresult (*cuIpcGetMemHandle)(CUipcMemHandle* handle, CUdeviceptr address);
  CUresult (*cuIpcOpenMemHandle)(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags);
  CUresult (*cuIpcCloseMemHandle)(CUdeviceptr address);

  CUresult (*cuMemcpyAsync)(CUdeviceptr to, CUdeviceptr from, std::size_t n_bytes, CUstream stream);
  CUresult (*cuMemcpyHtoDAsync)(CUdeviceptr to, const void* from, std::size_t n_bytes, CUstream stream);
  CUresult (*cuMemcpyDtoHAsync)(void* to, CUdeviceptr from, std::size_t n_bytes, CUstream stream);
  CUresult (*cuMemsetD8Async)(CUdeviceptr to, unsigned char value, std::size_t n_bytes, CUstream stream);

  CUresult (*cuStreamCreateWithPriority)(CUstream* stream, unsigned flags, int priority);
  CUresult (*cuStreamWaitEvent)(CUstream stream, CUevent event, unsigned flags);
  // `id`: of a capture, unique in the process.
  CUresult (*cuStreamGetCaptureInfo)(CUstream stream, CUstreamCaptureStatus* status, std::uint64_t* id, CUgraph* graph,
                                     const CUgraphNode** after, std::size_t* n_after);
  CUresult (*cuThreadExchangeStreamCaptureMode)(CUstreamCaptureMode* mode);
  CUresult (*cuUserObjectCreate)(CUuserObject* object, void* pointer, CUhostFn destroy, unsigned n_references,
                                 unsigned flags);
  CUresult (*cuUserObjectRelease)(CUuserObject object, unsigned n_references);
  CUresult (*cuGraphRetainUserObject)(CUgraph graph, CUuserObject object, unsigned n_references, unsigned flags);
  CUresult (*cuStreamSynchronize)(CUstream stream);

  CUresult (*cuEventCreate)(CUevent* event, unsigned flags);
  CUresult (*cuEventRecord)(CUevent event, CUstream stream);
  CUresult (*cuEventQuery)(CUevent event);

  CUresult (*cuModuleLoadData)(CUmodule* module, const void* image);
  CUresult (*cuModuleGetFunction)(CUfunction* function, CUmodule module, const char* name);
  CUresult (*cuLaunchKernel)(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                             unsigned block_y, unsigned block_z, unsigned n_shared_bytes, CUstream stream,
                             void** parameters, void** extra);
};

// The driver's own search, from CUDA 12.0 on. `status` says why a function was not found.
using GetProcAddress = CUresult (*)(const char* name, void** function, int version, std::uint64_t flags, int* status);
inline constexpr std::uint64_t kProcAddressLegacyStream = 1;  // a null stream is the legacy default stream

}  // namespace ciranda::cuda
