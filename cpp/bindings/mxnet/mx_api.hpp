// mx_api: what is used of MXNet's C API, found in the library that the process has loaded.
//
// The declarations are those of MXNet 1.9; tests/mxnet/test_internals.py compares them with the header that the
// installed MXNet brings.
//
// Threads: any, once find_mx_api() has returned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ciranda::mxnet {

using ArrayHandle = void*;

// mxnet::Context.
struct Device {
  std::int32_t type;
  std::int32_t number;
};
inline constexpr Device kCpu{1, 0};
inline constexpr std::int32_t kGpu = 2;

// mxnet::FnProperty.
inline constexpr std::int32_t kAsync = 4;

// mxnet::NDArrayStorageType.
inline constexpr int kDense = 0;

// mxnet::engine::CallbackOnComplete: three plain pointers, to be copied while the operation begins. `error` is a
// dmlc::Error, which is copied as the std::runtime_error that it is.
struct OnComplete {
  void (*callback)(void* engine, void* operation, const void* error);
  void* engine;
  void* operation;
};

// DLDataType, DLManagedTensor and its DLTensor, of DLPack before version 1.
struct DlType {
  std::uint8_t code;
  std::uint8_t n_bits;
  std::uint16_t n_lanes = 1;

  bool operator==(const DlType&) const = default;
};
struct DlManagedTensor {
  void* data;
  Device device;
  std::int32_t ndim;
  DlType type;
  std::int64_t* shape;
  std::int64_t* strides;  // null: row by row
  std::uint64_t byte_offset;
  void* manager;
  void (*give_back)(DlManagedTensor* self);
};

// An mxnet::NDArray by value, as functions return it that are not of the C API.
class OwnArray {
 public:
  OwnArray(const OwnArray&) = delete;
  OwnArray& operator=(const OwnArray&) = delete;
  ~OwnArray();

  ArrayHandle handle() { return bytes_; }

 private:
  alignas(64) std::byte bytes_[1024];  // of which it takes about a fifth
};

// Whether MXNet's engine is the one in which a push waits for its end.
bool is_naive();

struct MxApi {
  const char* (*GetLastError)();
  int (*EnginePushAsyncND)(void (*run)(void*, void*, void*), void* argument, void (*discard)(void*), const void* device,
                           ArrayHandle* read, int n_read, ArrayHandle* written, int n_written, const void* property,
                           int priority, const char* name, bool wait);
  int (*ShallowCopyNDArray)(ArrayHandle array, ArrayHandle* copy);
  int (*NDArrayFree)(ArrayHandle array);
  int (*NDArrayGetData)(ArrayHandle array, void** data);
  int (*NDArrayGetShapeEx64)(ArrayHandle array, int* ndim, const std::int64_t** shape);
  int (*NDArrayGetDType)(ArrayHandle array, int* dtype);
  int (*NDArrayGetContext)(ArrayHandle array, int* device_type, int* device_number);
  int (*NDArrayGetStorageType)(ArrayHandle array, int* storage);
  int (*NDArrayFromDLPackEx)(void* tensor, bool is_transient, ArrayHandle* array);
  // What follows is not there in builds without oneDNN; all of it or nothing. `memory` is that of memory_of().
  // mxnet::NDArray::Chunk::IsMKLDNN() const: whether it is in a layout of oneDNN's. Elsewhere NDArrayGetData() would
  // wait for an operation that changes it, which waits for the operation that asks.
  bool (*IsOneDnn)(const void* memory);
  // mxnet::NDArray::Chunk::Reorder2Default(): brings it to the usual layout. For whoever may write it.
  void (*Reorder)(const void* memory);
  // mxnet::NDArray::Reorder2Default() const: a copy in the usual layout.
  OwnArray (*Reordered)(const void* array);
  // mxnet::NDArray::~NDArray().
  void (*Destroy)(void* array);
  // version() of mxnet::engine::Var's class. Null where it is not known where an array's memory has its variable.
  std::size_t (*Version)(const void* variable);
};

// Where mxnet::NDArray::Chunk, as memory_of() gives it, has its variable of the engine, with oneDNN and without.
inline constexpr std::size_t kVariableAt = 72;
inline constexpr std::size_t kVariableAtWithoutOneDnn = 56;

// The functions found. REQUIRES: find_mx_api() has returned "".
const MxApi& mx();

// Looks all functions up in `library`, the handle that dlopen() gave for it. Returns what is missing; "" if nothing.
std::string find_mx_api(void* library, const std::string& version);

struct FreeArray {
  void operator()(void* array) const { (void)mx().NDArrayFree(array); }
};
inline OwnArray::~OwnArray() { mx().Destroy(bytes_); }

// A reference to an array, of our own.
using Array = std::unique_ptr<void, FreeArray>;

// Null, with GetLastError(), if MXNet could not.
Array share(ArrayHandle array);

// The same for all arrays that share memory, and so are one variable to MXNet's engine: NDArray begins with a
// std::shared_ptr of its memory.
inline const void* memory_of(const void* array) { return *static_cast<const void* const*>(array); }

// How many operations that have ended have written the array's memory, with the naive engine also those that have
// begun; nothing in releases of MXNet whose arrays are not known to be laid out as here.
std::optional<std::size_t> version_of(const void* array);

// Of arrays that share memory the first, as MXNet's engine wants each of its variables once; `without` what is there
// already, by memory_of().
std::vector<ArrayHandle> one_each(const std::vector<Array>& arrays, std::vector<const void*> without = {});

}  // namespace ciranda::mxnet
