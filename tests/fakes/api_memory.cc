// Memory: device, pinned, registered, and that of other processes.
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "call.hpp"
#include "checker.hpp"
#include "device_memory.hpp"
#include "exports.hpp"
#include "handles.hpp"
#include "host_memory.hpp"
#include "ipc.hpp"

namespace ciranda::fakes {
namespace {

const void* at(CUdeviceptr address) { return reinterpret_cast<const void*>(address); }

Touch all_of(const Range& range) { return {range.memory(), range.n_bytes, true}; }

// The range that begins at `address` and is of `kind`; null: none is, which is reported.
std::shared_ptr<Range> find_whole(const char* call, const void* address, Kind kind) {
  auto range = address_map().find(address);
  if (range != nullptr && range->memory() == address && range->kind == kind) return range;
  const auto how = address_map().end_of(address);
  if (settings()->checks) {
    report(std::string(call) + ": no such memory" + (how ? ", since it was ended by " + *how : "") +
           ", or of another kind");
  }
  return nullptr;
}

// Takes memory of the host or of another process away: the host must know of the end of all that uses it.
std::shared_ptr<Range> take_away(const char* call, const void* address, Kind kind) {
  auto range = find_whole(call, address, kind);
  if (range == nullptr) return nullptr;
  checker().end(*range, call);
  address_map().end(*range, call);
  address_map().remove(*range);
  return range;
}

// What a pool has given back counts as free at once.
struct Pool {
  explicit Pool(CUdevice of) : device(of) {}
  CUdevice device;
};

Handles<CUmemoryPool, Pool>& pools() {
  static auto* const kept = new Handles<CUmemoryPool, Pool>;
  return *kept;
}

CUresult allocate_in_order(const char* call, CUdeviceptr* address, std::size_t n_bytes, CUdevice device,
                           Stream& stream) {
  if (n_bytes == 0) return CUresult::kInvalidValue;
  const auto range = allocate_device(device, n_bytes, call, false);
  if (range == nullptr) return CUresult::kOutOfMemory;
  *address = range->begin;
  return stream.enqueue({.call = call, .touches = {all_of(*range)}});
}

}  // namespace

CUresult cuMemAlloc_v2(CUdeviceptr* address, std::size_t n_bytes) {
  return in_context("cuMemAlloc", [&](Context& context) {
    if (n_bytes == 0) return CUresult::kInvalidValue;
    const auto range = allocate_device(context.device, n_bytes, "cuMemAlloc", true);
    if (range == nullptr) return CUresult::kOutOfMemory;
    *address = range->begin;
    return CUresult::kSuccess;
  });
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  return in_context("cuMemFree", [&](Context&) {
    if (address == 0) return CUresult::kSuccess;
    const auto range = take_away("cuMemFree", at(address), Kind::kDevice);
    if (range == nullptr) return CUresult::kInvalidValue;
    release_device(*range);
    return CUresult::kSuccess;
  });
}

CUresult cuMemAllocAsync(CUdeviceptr* address, std::size_t n_bytes, CUstream handle) {
  return on_stream("cuMemAllocAsync", handle, [&](Context& context, Stream& stream) {
    return allocate_in_order("cuMemAllocAsync", address, n_bytes, context.device, stream);
  });
}

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  return initialized("cuMemPoolCreate", [&] {
    using cuda::CUmemAllocationType;
    using cuda::CUmemLocationType;
    const auto device = properties->location.id;
    const bool is_of_a_device = properties->location.type == CUmemLocationType::kDevice && device >= 0 &&
                                static_cast<std::size_t>(device) < settings()->gpus.size();
    if (!is_of_a_device || properties->type != CUmemAllocationType::kPinned) return CUresult::kInvalidValue;
    *pool = pools().add(std::make_shared<Pool>(device));
    return CUresult::kSuccess;
  });
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  return initialized("cuMemPoolSetAttribute", [&] {
    if (pools().find(handle) == nullptr) return CUresult::kInvalidHandle;
    const bool is_known = attribute == CUmemPool_attribute::kReleaseThreshold;
    return is_known && value != nullptr ? CUresult::kSuccess : CUresult::kInvalidValue;
  });
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* address, std::size_t n_bytes, CUmemoryPool handle, CUstream of) {
  return on_stream("cuMemAllocFromPoolAsync", of, [&](Context&, Stream& stream) {
    const auto pool = pools().find(handle);
    if (pool == nullptr || pool->device != stream.device()) return CUresult::kInvalidValue;
    return allocate_in_order("cuMemAllocFromPoolAsync", address, n_bytes, pool->device, stream);
  });
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
  return on_stream("cuMemFreeAsync", handle, [&](Context&, Stream& stream) {
    const auto range = find_whole("cuMemFreeAsync", at(address), Kind::kDevice);
    if (range == nullptr) return CUresult::kInvalidValue;
    const auto run = [range](const VectorClock&) {
      address_map().remove(*range);
      release_device(*range);
      return CUresult::kSuccess;
    };
    const CUresult given = stream.enqueue({.call = "cuMemFreeAsync", .touches = {all_of(*range)}, .run = run});
    if (given == CUresult::kSuccess) address_map().end(*range, "cuMemFreeAsync");
    return given;
  });
}

CUresult cuMemHostAlloc(void** address, std::size_t n_bytes, unsigned) {
  return in_context("cuMemHostAlloc", [&](Context& context) {
    if (n_bytes == 0) return CUresult::kInvalidValue;
    const auto range = allocate_pinned(context.device, n_bytes);
    if (range == nullptr) return CUresult::kOutOfMemory;
    *address = range->memory();
    return CUresult::kSuccess;
  });
}

CUresult cuMemFreeHost(void* address) {
  return in_context("cuMemFreeHost", [&](Context&) {
    const auto range = take_away("cuMemFreeHost", address, Kind::kPinned);
    if (range == nullptr) return CUresult::kInvalidValue;
    range->pages = nullptr;
    release_pinned(*range);
    return CUresult::kSuccess;
  });
}

CUresult cuMemHostRegister_v2(void* address, std::size_t n_bytes, unsigned) {
  return in_context("cuMemHostRegister", [&](Context& context) {
    if (address == nullptr || n_bytes == 0) return CUresult::kInvalidValue;
    return register_host(context.device, static_cast<std::byte*>(address), n_bytes);
  });
}

CUresult cuMemHostUnregister(void* address) {
  return in_context("cuMemHostUnregister", [&](Context&) {
    const auto range = take_away("cuMemHostUnregister", address, Kind::kRegistered);
    if (range == nullptr) return CUresult::kHostMemoryNotRegistered;
    range->pages = nullptr;
    unregister_host(*range);
    return CUresult::kSuccess;
  });
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* on_device, void* address, unsigned) {
  return in_context("cuMemHostGetDevicePointer", [&](Context&) {
    const auto range = address_map().find(address);
    if (range == nullptr || !range->is_host()) return CUresult::kInvalidValue;
    *on_device = reinterpret_cast<CUdeviceptr>(address);
    return CUresult::kSuccess;
  });
}

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  return in_context("cuIpcGetMemHandle", [&](Context&) {
    if (settings()->ipc == Ipc::kNoExport) return CUresult::kNotSupported;
    const auto range = address_map().find(at(address));
    if (range == nullptr || !range->can_be_exported) return CUresult::kInvalidValue;
    *handle = export_range(*range);
    return CUresult::kSuccess;
  });
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  return in_context("cuIpcOpenMemHandle", [&](Context& context) {
    if (flags != cuda::kIpcLazyPeerAccess) return CUresult::kInvalidValue;
    if (settings()->ipc == Ipc::kNoImport) return CUresult::kMapFailed;
    const Import import = import_range(handle, context.device);
    if (import.outcome == CUresult::kSuccess) *address = import.range->begin;
    return import.outcome;
  });
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  return in_context("cuIpcCloseMemHandle", [&](Context&) {
    const auto range = find_whole("cuIpcCloseMemHandle", at(address), Kind::kImported);
    if (range == nullptr) return CUresult::kInvalidValue;
    if (close_import(range) == nullptr) return CUresult::kSuccess;
    checker().end(*range, "cuIpcCloseMemHandle");
    address_map().end(*range, "cuIpcCloseMemHandle");
    address_map().remove(*range);
    unmap_import(*range);
    return CUresult::kSuccess;
  });
}

}  // namespace ciranda::fakes
