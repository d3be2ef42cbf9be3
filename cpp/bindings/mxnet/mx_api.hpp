// mx_api: the functions of MXNet's C API that are used here, found in the library that the process has loaded.
//
// The declarations are those of MXNet 1.9; tests/mxnet/test_internals.py compares them with the header of the installed
// MXNet.
//
// Threads: any, once find_mx_api() has returned.
//
// Called by FailedOperations, FailedResults, Held, layout.hpp, lent.hpp, push(), plugin.cc, Running and tables.hpp.
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

// mxnet::engine::CallbackOnComplete: three plain pointers, copied while the operation begins. `error` is a dmlc::Error,
// which MXNet copies as its base class std::runtime_error.
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
  std::int64_t* strides;  // null: row-major
  std::uint64_t byte_offset;
  void* manager;
  void (*give_back)(DlManagedTensor* self);
};

// An mxnet::NDArray by value, as C++ functions of MXNet return it.
class OwnArray {
 public:
  OwnArray(const OwnArray&) = delete;
  OwnArray& operator=(const OwnArray&) = delete;
  ~OwnArray();

  ArrayHandle handle() { return bytes_; }

 private:
  alignas(64) std::byte bytes_[1024];  // it needs about a fifth of them
};

// Whether MXNet's engine is NaiveEngine, in which a push blocks until the operation is done.
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
  // Builds without oneDNN lack the next four functions; IsOneDnn is then null. `memory` is that of memory_of().
  // mxnet::NDArray::Chunk::IsMKLDNN() const: true if the array has a layout of oneDNN's. NDArrayGetData() would then
  // deadlock: it waits for an operation that changes the layout, which waits for the calling operation.
  bool (*IsOneDnn)(const void* memory);
  // mxnet::NDArray::Chunk::Reorder2Default(): converts it to the default layout. REQUIRES: the caller may write it.
  void (*Reorder)(const void* memory);
  // mxnet::NDArray::Reorder2Default() const: a copy in the default layout.
  OwnArray (*Reordered)(const void* array);
  // mxnet::NDArray::~NDArray().
  void (*Destroy)(void* array);
  // version() of mxnet::engine::Var's class. Null if the offset of the variable in an array's memory is unknown.
  std::size_t (*Version)(const void* variable);
};

// The offset of the engine's variable in mxnet::NDArray::Chunk (memory_of()), with oneDNN and without.
inline constexpr std::size_t kVariableAt = 72;
inline constexpr std::size_t kVariableAtWithoutOneDnn = 56;

// The functions that find_mx_api() has found. REQUIRES: it has returned "".
const MxApi& mx();

// Looks up all functions in `library`, a handle of dlopen(). Returns an error that names the missing ones; "" if none.
std::string find_mx_api(void* library, const std::string& version);

struct FreeArray {
  void operator()(void* array) const { (void)mx().NDArrayFree(array); }
};
inline OwnArray::~OwnArray() { mx().Destroy(bytes_); }

// Our own reference to an array.
using Array = std::unique_ptr<void, FreeArray>;

// Creates a reference to the array. Null on failure; GetLastError() has the reason.
Array share(ArrayHandle array);

// Identifies an array's memory: equal for arrays that share memory, and so are the same variable of MXNet's engine.
// Reads the std::shared_ptr with which an NDArray begins.
inline const void* memory_of(const void* array) { return *static_cast<const void* const*>(array); }

// The number of completed operations that have written the array's memory; the naive engine also counts operations that
// have begun. nullopt if the layout of arrays is unknown for this release of MXNet.
std::optional<std::size_t> version_of(const void* array);

// Returns one array for each memory, since MXNet's engine takes each variable once. Omits arrays whose memory_of() is
// in `without`.
std::vector<ArrayHandle> one_each(const std::vector<Array>& arrays, std::vector<const void*> without = {});

}  // namespace ciranda::mxnet
