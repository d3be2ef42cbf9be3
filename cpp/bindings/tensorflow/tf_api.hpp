// tf_api: our own declarations of the functions of TensorFlow's C API that the binding uses. They are found by name in
// the loaded framework library. So no header of TensorFlow is needed, and one binary serves all versions with them.
//
// Threads: find_tf_api() is called once, before all other functions; any thread may call tf().
// Failure: find_tf_api() returns a text that names the missing functions.
//
// Called by Attributes, ops.hpp, plugin.cc, Run, shapes.hpp and tables.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

extern "C" {
struct TF_Status;
struct TF_Tensor;
struct TF_KernelBuilder;
struct TF_OpDefinitionBuilder;
struct TF_OpKernelConstruction;
struct TF_OpKernelContext;
struct TF_ShapeHandle;
struct TF_ShapeInferenceContext;
struct TF_AsyncOpKernelDoneCallback;

struct TF_StringView {
  const char* data;
  std::size_t len;
};
}

namespace ciranda::tensorflow {

// TensorFlow's enums, whose numbers are part of its saved graphs.
enum DataType : int {
  kFloat = 1,
  kDouble = 2,
  kInt32 = 3,
  kUint8 = 4,
  kInt16 = 5,
  kInt8 = 6,
  kComplex64 = 8,
  kInt64 = 9,
  kBool = 10,
  kBfloat16 = 14,
  kUint16 = 17,
  kComplex128 = 18,
  kHalf = 19,
  kUint32 = 22,
  kUint64 = 23
};

enum Code : int {
  kOk = 0,
  kInvalidArgument = 3,
  kFailedPrecondition = 9,
  kAborted = 10,
  kInternal = 13,
};

using Create = void* (*)(TF_OpKernelConstruction*);
using Compute = void (*)(void*, TF_OpKernelContext*);
using ComputeAsync = void (*)(void*, TF_OpKernelContext*, TF_AsyncOpKernelDoneCallback*);
using Delete = void (*)(void*);
using InferShapes = void (*)(TF_ShapeInferenceContext*, TF_Status*);

// Named as in TensorFlow, without "TF_".
struct TfApi {
  TF_Status* (*NewStatus)();
  void (*DeleteStatus)(TF_Status*);
  void (*SetStatus)(TF_Status*, Code, const char*);
  Code (*GetCode)(const TF_Status*);
  const char* (*Message)(const TF_Status*);

  TF_Tensor* (*NewTensor)(DataType, const std::int64_t* dims, int num_dims, void* data, std::size_t len,
                          void (*deallocator)(void* data, std::size_t len, void* arg), void* arg);
  void (*DeleteTensor)(TF_Tensor*);
  DataType (*TensorType)(const TF_Tensor*);
  int (*NumDims)(const TF_Tensor*);
  std::int64_t (*Dim)(const TF_Tensor*, int);
  void* (*TensorData)(const TF_Tensor*);

  TF_OpDefinitionBuilder* (*NewOpDefinitionBuilder)(const char* name);
  void (*OpDefinitionBuilderAddAttr)(TF_OpDefinitionBuilder*, const char* spec);
  void (*OpDefinitionBuilderAddInput)(TF_OpDefinitionBuilder*, const char* spec);
  void (*OpDefinitionBuilderAddOutput)(TF_OpDefinitionBuilder*, const char* spec);
  void (*OpDefinitionBuilderSetIsStateful)(TF_OpDefinitionBuilder*, bool);
  void (*OpDefinitionBuilderSetShapeInferenceFunction)(TF_OpDefinitionBuilder*, InferShapes);
  void (*RegisterOpDefinition)(TF_OpDefinitionBuilder*, TF_Status*);

  TF_ShapeHandle* (*NewShapeHandle)();
  void (*DeleteShapeHandle)(TF_ShapeHandle*);
  std::int64_t (*ShapeInferenceContextNumInputs)(TF_ShapeInferenceContext*);
  void (*ShapeInferenceContextGetInput)(TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*);
  void (*ShapeInferenceContextSetOutput)(TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*);
  TF_ShapeHandle* (*ShapeInferenceContextScalar)(TF_ShapeInferenceContext*);
  TF_ShapeHandle* (*ShapeInferenceContextVectorFromSize)(TF_ShapeInferenceContext*, std::size_t);
  std::int64_t (*ShapeInferenceContextRank)(TF_ShapeInferenceContext*, TF_ShapeHandle*);
  int (*ShapeInferenceContextRankKnown)(TF_ShapeInferenceContext*, TF_ShapeHandle*);
  void (*ShapeInferenceContextSubshape)(TF_ShapeInferenceContext*, TF_ShapeHandle*, std::int64_t start,
                                        std::int64_t end, TF_ShapeHandle* result, TF_Status*);
  void (*ShapeInferenceContextConcatenateShapes)(TF_ShapeInferenceContext*, TF_ShapeHandle* first,
                                                 TF_ShapeHandle* second, TF_ShapeHandle* result, TF_Status*);

  TF_KernelBuilder* (*NewKernelBuilder)(const char* op, const char* device, Create, Compute, Delete);
  TF_KernelBuilder* (*NewAsyncKernelBuilder)(const char* op, const char* device, Create, ComputeAsync, Delete);
  void (*RegisterKernelBuilder)(const char* name, TF_KernelBuilder*, TF_Status*);

  TF_StringView (*OpKernelConstruction_GetName)(TF_OpKernelConstruction*);
  void (*OpKernelConstruction_GetAttrSize)(TF_OpKernelConstruction*, const char* name, std::int32_t* list_size,
                                           std::int32_t* total_size, TF_Status*);
  void (*OpKernelConstruction_GetAttrString)(TF_OpKernelConstruction*, const char* name, char* value,
                                             std::size_t max_length, TF_Status*);
  void (*OpKernelConstruction_GetAttrInt64)(TF_OpKernelConstruction*, const char* name, std::int64_t* value,
                                            TF_Status*);
  void (*OpKernelConstruction_Failure)(TF_OpKernelConstruction*, TF_Status*);

  std::int64_t (*GetIterId)(TF_OpKernelContext*);
  int (*NumInputs)(TF_OpKernelContext*);
  void (*GetInput)(TF_OpKernelContext*, int, TF_Tensor**, TF_Status*);
  void (*SetOutput)(TF_OpKernelContext*, int, const TF_Tensor*, TF_Status*);
  TF_Tensor* (*AllocateOutput)(TF_OpKernelContext*, int index, DataType, const std::int64_t* dims, int num_dims,
                               std::size_t len, TF_Status*);
  TF_Tensor* (*ForwardInputOrAllocateOutput)(TF_OpKernelContext*, const int* candidates, int num_candidates, int output,
                                             const std::int64_t* dims, int num_dims, int* forwarded, TF_Status*);
  void (*OpKernelContext_Failure)(TF_OpKernelContext*, TF_Status*);
};

// Finds the functions. Returns "", or an error that names the missing ones.
std::string find_tf_api(const std::string& version);

const TfApi& tf();

struct DeleteTensor {
  void operator()(TF_Tensor* tensor) const noexcept { tf().DeleteTensor(tensor); }
};
using Tensor = std::unique_ptr<TF_Tensor, DeleteTensor>;

// Owns a TF_Status, which has the result of the call that used it.
class Status {
 public:
  Status() : status_(tf().NewStatus()) {}
  Status(Code code, const std::string& message) : Status() { tf().SetStatus(get(), code, message.c_str()); }

  TF_Status* get() const { return status_.get(); }
  bool ok() const { return tf().GetCode(get()) == kOk; }
  std::string message() const { return tf().Message(get()); }

 private:
  struct DeleteStatus {
    void operator()(TF_Status* status) const noexcept { tf().DeleteStatus(status); }
  };
  std::unique_ptr<TF_Status, DeleteStatus> status_;
};

// The completion callback of an asynchronous kernel. TensorFlow passes a std::function<void()> on its stack (a test
// checks that it is one). It is copied, because the kernel returns before the call is done.
using Done = std::function<void()>;
inline Done copy_of(TF_AsyncOpKernelDoneCallback* done) { return *reinterpret_cast<Done*>(done); }

}  // namespace ciranda::tensorflow
