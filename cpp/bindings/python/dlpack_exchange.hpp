// The C structures of DLPack 1.x by which array libraries exchange tensors without a Python call: only those used here,
// with the layout of the DLPack specification (https://dmlc.github.io/dlpack/latest/c_api.html).
//
// A library offers its table as the capsule `type(tensor).__dlpack_c_exchange_api__`. Check the table's major version
// (find_supported) before touching anything after the header.
//
// Called by outputs.hpp, TensorLibrary and TensorReader, with the GIL.
#pragma once

#include <cstdint>

namespace ciranda::dlpack {

inline constexpr std::uint32_t kMajorVersion = 1;
inline constexpr const char* kExchangeAttribute = "__dlpack_c_exchange_api__";
inline constexpr const char* kExchangeCapsule = "dlpack_exchange_api";

enum DeviceType : std::int32_t { kCpu = 1, kCuda = 2, kCudaHost = 3 };

struct Version {
  std::uint32_t major;
  std::uint32_t minor;
};

struct Device {
  std::int32_t type;
  std::int32_t id;
};

struct ElementType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  std::int32_t ndim;
  ElementType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; may be null for a contiguous tensor
  std::uint64_t byte_offset;
};

struct ManagedTensor {  // DLManagedTensorVersioned
  Version version;
  void* manager;
  void (*deleter)(ManagedTensor* self);
  std::uint64_t flags;
  Tensor tensor;
};

struct ExchangeHeader {
  Version version;
  ExchangeHeader* previous;  // an older table of the same library, or null
};

using SetError = void (*)(void* context, const char* kind, const char* message);

struct ExchangeTable {
  ExchangeHeader header;
  int (*allocate)(Tensor* prototype, ManagedTensor** out, void* error_context, SetError set_error);
  int (*to_managed)(void* py_object, ManagedTensor** out);
  int (*from_managed)(ManagedTensor* tensor, void** out_py_object);  // takes ownership of the tensor
  int (*view)(void* py_object, Tensor* out);                         // borrows; null if not supported
  int (*current_stream)(std::int32_t device_type, std::int32_t device_id, void** out);
};

// The newest table in the chain that has our layout and can lend views; null if there is none.
inline const ExchangeTable* find_supported(const ExchangeHeader* header) {
  for (; header != nullptr; header = header->previous) {
    if (header->version.major != kMajorVersion) continue;
    const auto* table = reinterpret_cast<const ExchangeTable*>(header);
    return table->view != nullptr && table->from_managed != nullptr ? table : nullptr;
  }
  return nullptr;
}

}  // namespace ciranda::dlpack
