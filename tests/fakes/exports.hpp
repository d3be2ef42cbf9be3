// The functions of the fake libcuda.so.1, under the names that the real one exports.
#pragma once

#include <cstddef>
#include <cstdint>

#include "types.hpp"

#pragma GCC visibility push(default)
extern "C" {
namespace ciranda::fakes {

CUresult cuGetProcAddress_v2(const char* name, void** function, int version, std::uint64_t flags, int* status);
CUresult cuInit(unsigned flags);
CUresult cuDriverGetVersion(int* version);
CUresult cuGetErrorName(CUresult error, const char** name);
CUresult cuGetErrorString(CUresult error, const char** text);
CUresult cuDeviceGetCount(int* count);
CUresult cuDeviceGet(CUdevice* device, int ordinal);
CUresult cuDeviceGetName(char* name, int n_bytes, CUdevice device);
CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device);
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device);
CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer);
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuCtxGetCurrent(CUcontext* context);
CUresult cuCtxSynchronize();
CUresult cuMemAlloc_v2(CUdeviceptr* address, std::size_t n_bytes);
CUresult cuMemFree_v2(CUdeviceptr address);
CUresult cuMemAllocAsync(CUdeviceptr* address, std::size_t n_bytes, CUstream stream);
CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties);
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr* address, std::size_t n_bytes, CUmemoryPool pool, CUstream stream);
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream);
CUresult cuMemHostAlloc(void** address, std::size_t n_bytes, unsigned flags);
CUresult cuMemFreeHost(void* address);
CUresult cuMemHostRegister_v2(void* address, std::size_t n_bytes, unsigned flags);
CUresult cuMemHostUnregister(void* address);
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* on_device, void* address, unsigned flags);
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** values, CUdeviceptr address);
CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address);
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags);
CUresult cuIpcCloseMemHandle(CUdeviceptr address);
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t n_bytes, CUstream stream);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t n_bytes, CUstream stream);
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t n_bytes, CUstream stream);
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t n_bytes, CUstream stream);
CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority);
CUresult cuStreamDestroy_v2(CUstream stream);
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags);
CUresult cuStreamBeginCapture_v2(CUstream stream, cuda::CUstreamCaptureMode mode);
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph);
CUresult cuStreamGetCaptureInfo_v2(CUstream stream, cuda::CUstreamCaptureStatus* status, std::uint64_t* id,
                                   CUgraph* graph, const cuda::CUgraphNode** after, std::size_t* n_after);
CUresult cuThreadExchangeStreamCaptureMode(cuda::CUstreamCaptureMode* mode);
// The nodes' number alone.
CUresult cuGraphGetNodes(CUgraph graph, cuda::CUgraphNode* nodes, std::size_t* n_nodes);
CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags);
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream);
CUresult cuGraphExecDestroy(CUgraphExec exec);
CUresult cuGraphDestroy(CUgraph graph);
CUresult cuUserObjectCreate(CUuserObject* object, void* pointer, CUhostFn destroy, unsigned n_references,
                            unsigned flags);
CUresult cuUserObjectRelease(CUuserObject object, unsigned n_references);
CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned n_references, unsigned flags);
CUresult cuStreamQuery(CUstream stream);
CUresult cuStreamSynchronize(CUstream stream);
CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr to, std::uint32_t value, unsigned flags);
CUresult cuEventCreate(CUevent* event, unsigned flags);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuEventQuery(CUevent event);
CUresult cuEventDestroy_v2(CUevent event);
CUresult cuModuleLoadData(CUmodule* module, const void* image);
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name);
CUresult cuModuleUnload(CUmodule module);
CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned n_shared_bytes, CUstream stream, void** parameters,
                        void** extra);

}  // namespace ciranda::fakes
}
#pragma GCC visibility pop
