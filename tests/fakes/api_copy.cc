// Copies, fills, and values written in the order of a stream.
//
// From pageable memory of the host the driver has copied when the call returns; to it, it returns when the copy is
// done. Pinned memory is used when the stream comes to the copy.
#include <atomic>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "address_map.hpp"
#include "call.hpp"
#include "checker.hpp"
#include "exports.hpp"

namespace ciranda::fakes {
namespace {

const std::byte* at(CUdeviceptr address) { return reinterpret_cast<const std::byte*>(address); }
CUdeviceptr number_of(const void* address) { return reinterpret_cast<CUdeviceptr>(address); }

std::byte* in_kernel(CUdeviceptr address) { return address_map().in_kernel(at(address)); }

bool is_pageable(CUdeviceptr address) {
  return address_map().find(at(address)) == nullptr && !address_map().end_of(at(address));
}

struct Copy {
  const char* call;
  CUdeviceptr to;
  CUdeviceptr from;
  std::size_t n_bytes;
  bool is_to_pageable = false;
  bool is_from_pageable = false;
};

Launch launch_of(const Copy& copy) {
  Launch launch{.call = copy.call};
  if (!copy.is_from_pageable) launch.touches.push_back({at(copy.from), copy.n_bytes, false});
  if (!copy.is_to_pageable) launch.touches.push_back({at(copy.to), copy.n_bytes, true});
  std::vector<std::byte> staged;
  if (copy.is_from_pageable) staged.assign(at(copy.from), at(copy.from) + copy.n_bytes);
  launch.run = [copy, staged = std::move(staged)](const VectorClock&) {
    const std::byte* const from = copy.is_from_pageable ? staged.data() : in_kernel(copy.from);
    std::memmove(in_kernel(copy.to), from, copy.n_bytes);
    return CUresult::kSuccess;
  };
  return launch;
}

CUresult enqueue(const Copy& copy, CUstream handle) {
  Point copied;
  const CUresult given = on_stream(copy.call, handle, [&](Context&, Stream& stream) {
    return copy.n_bytes == 0 ? CUresult::kSuccess : stream.enqueue(launch_of(copy), &copied);
  });
  if (given != CUresult::kSuccess || !copy.is_to_pageable) return given;
  copied.wait();
  checker().learn(copied.clock);
  return current_context()->fault;
}

}  // namespace

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t n_bytes, CUstream stream) {
  return enqueue({"cuMemcpyAsync", to, from, n_bytes, is_pageable(to), is_pageable(from)}, stream);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t n_bytes, CUstream stream) {
  return enqueue({"cuMemcpyHtoDAsync", to, number_of(from), n_bytes, false, is_pageable(number_of(from))}, stream);
}

CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t n_bytes, CUstream stream) {
  return enqueue({"cuMemcpyDtoHAsync", number_of(to), from, n_bytes, is_pageable(number_of(to)), false}, stream);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t n_bytes, CUstream handle) {
  return on_stream("cuMemsetD8Async", handle, [&](Context&, Stream& stream) {
    const auto run = [=](const VectorClock&) {
      std::memset(in_kernel(to), value, n_bytes);
      return CUresult::kSuccess;
    };
    return stream.enqueue({.call = "cuMemsetD8Async", .touches = {{at(to), n_bytes, true}}, .run = run});
  });
}

// The host may see the value without a call, and by it that all before it has ended.
CUresult cuStreamWriteValue32_v2(CUstream handle, CUdeviceptr to, std::uint32_t value, unsigned flags) {
  return on_stream("cuStreamWriteValue32", handle, [&](Context&, Stream& stream) {
    if (to % sizeof value != 0 || flags != cuda::kWriteValueDefault) return CUresult::kInvalidValue;
    const auto run = [=](const VectorClock& clock) {
      checker().publish(clock);
      std::atomic_ref(*reinterpret_cast<std::uint32_t*>(in_kernel(to))).store(value);
      return CUresult::kSuccess;
    };
    return stream.enqueue({.call = "cuStreamWriteValue32", .touches = {{at(to), sizeof value, true}}, .run = run});
  });
}

}  // namespace ciranda::fakes
