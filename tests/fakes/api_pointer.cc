// What the driver knows of an address.
#include <cstddef>
#include <cstdint>

#include "address_map.hpp"
#include "call.hpp"
#include "exports.hpp"

namespace ciranda::fakes {
namespace {

constexpr int kNoOrdinal = -2;

template <typename Value>
void put(void* where, Value value) {
  *static_cast<Value*>(where) = value;
}

CUmemorytype type_of(const Range* range) {
  if (range == nullptr) return CUmemorytype::kUnknown;
  return range->is_host() ? CUmemorytype::kHost : CUmemorytype::kDevice;
}

// `range` is null for memory that the driver does not know: its attributes are zeros, and there is no error.
CUresult answer(CUpointer_attribute attribute, void* where, const Range* range, CUdeviceptr address) {
  const bool is_host = range != nullptr && range->is_host();
  switch (attribute) {
    case CUpointer_attribute::kContext:
      put<CUcontext>(where, range == nullptr ? nullptr : handle_of(range->device));
      break;
    case CUpointer_attribute::kMemoryType: put(where, type_of(range)); break;
    case CUpointer_attribute::kDevicePointer: put<CUdeviceptr>(where, range == nullptr ? 0 : address); break;
    case CUpointer_attribute::kHostPointer: put(where, is_host ? reinterpret_cast<void*>(address) : nullptr); break;
    case CUpointer_attribute::kBufferId: put<std::uint64_t>(where, range == nullptr ? 0 : range->id); break;
    case CUpointer_attribute::kIsManaged: put<unsigned>(where, 0); break;
    case CUpointer_attribute::kDeviceOrdinal: put<int>(where, range == nullptr ? kNoOrdinal : range->device); break;
    case CUpointer_attribute::kIsLegacyIpcCapable:
      put<unsigned>(where, range != nullptr && range->can_be_exported ? 1 : 0);
      break;
    case CUpointer_attribute::kRangeStartAddr: put<CUdeviceptr>(where, range == nullptr ? 0 : range->begin); break;
    case CUpointer_attribute::kRangeSize: put<std::size_t>(where, range == nullptr ? 0 : range->n_bytes); break;
    case CUpointer_attribute::kMapped: put<unsigned>(where, range == nullptr ? 0 : 1); break;
    default: return CUresult::kInvalidValue;
  }
  return CUresult::kSuccess;
}

}  // namespace

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** values, CUdeviceptr address) {
  return in_context("cuPointerGetAttributes", [&](Context&) {
    const auto range = address_map().find(reinterpret_cast<const void*>(address));
    for (unsigned i = 0; i < count; ++i) {
      const CUresult answered = answer(attributes[i], values[i], range.get(), address);
      if (answered != CUresult::kSuccess) return answered;
    }
    return CUresult::kSuccess;
  });
}

}  // namespace ciranda::fakes
