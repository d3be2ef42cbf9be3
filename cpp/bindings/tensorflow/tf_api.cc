#include "bindings/tensorflow/tf_api.hpp"

#include <ciranda/native/symbols.hpp>

namespace ciranda::tensorflow {
namespace {

TfApi found;

}  // namespace

const TfApi& tf() { return found; }

std::string find_tf_api(const std::string& version) {
  using native::wanted;
  void* const library = native::loaded_library("libtensorflow_framework.so.2");
  return native::find_symbols(
      library, "TensorFlow", version,
      {
          wanted("TF_NewStatus", found.NewStatus),
          wanted("TF_DeleteStatus", found.DeleteStatus),
          wanted("TF_SetStatus", found.SetStatus),
          wanted("TF_GetCode", found.GetCode),
          wanted("TF_Message", found.Message),
          wanted("TF_NewTensor", found.NewTensor),
          wanted("TF_DeleteTensor", found.DeleteTensor),
          wanted("TF_TensorType", found.TensorType),
          wanted("TF_NumDims", found.NumDims),
          wanted("TF_Dim", found.Dim),
          wanted("TF_TensorData", found.TensorData),
          wanted("TF_NewOpDefinitionBuilder", found.NewOpDefinitionBuilder),
          wanted("TF_OpDefinitionBuilderAddAttr", found.OpDefinitionBuilderAddAttr),
          wanted("TF_OpDefinitionBuilderAddInput", found.OpDefinitionBuilderAddInput),
          wanted("TF_OpDefinitionBuilderAddOutput", found.OpDefinitionBuilderAddOutput),
          wanted("TF_OpDefinitionBuilderSetIsStateful", found.OpDefinitionBuilderSetIsStateful),
          wanted("TF_OpDefinitionBuilderSetShapeInferenceFunction", found.OpDefinitionBuilderSetShapeInferenceFunction),
          wanted("TF_RegisterOpDefinition", found.RegisterOpDefinition),
          wanted("TF_NewShapeHandle", found.NewShapeHandle),
          wanted("TF_DeleteShapeHandle", found.DeleteShapeHandle),
          wanted("TF_ShapeInferenceContextNumInputs", found.ShapeInferenceContextNumInputs),
          wanted("TF_ShapeInferenceContextGetInput", found.ShapeInferenceContextGetInput),
          wanted("TF_ShapeInferenceContextSetOutput", found.ShapeInferenceContextSetOutput),
          wanted("TF_ShapeInferenceContextScalar", found.ShapeInferenceContextScalar),
          wanted("TF_ShapeInferenceContextVectorFromSize", found.ShapeInferenceContextVectorFromSize),
          wanted("TF_ShapeInferenceContextRank", found.ShapeInferenceContextRank),
          wanted("TF_ShapeInferenceContextRankKnown", found.ShapeInferenceContextRankKnown),
          wanted("TF_ShapeInferenceContextSubshape", found.ShapeInferenceContextSubshape),
          wanted("TF_ShapeInferenceContextConcatenateShapes", found.ShapeInferenceContextConcatenateShapes),
          wanted("TF_NewKernelBuilder", found.NewKernelBuilder),
          wanted("TF_NewAsyncKernelBuilder", found.NewAsyncKernelBuilder),
          wanted("TF_RegisterKernelBuilder", found.RegisterKernelBuilder),
          wanted("TF_OpKernelConstruction_GetName", found.OpKernelConstruction_GetName),
          wanted("TF_OpKernelConstruction_GetAttrSize", found.OpKernelConstruction_GetAttrSize),
          wanted("TF_OpKernelConstruction_GetAttrString", found.OpKernelConstruction_GetAttrString),
          wanted("TF_OpKernelConstruction_GetAttrInt64", found.OpKernelConstruction_GetAttrInt64),
          wanted("TF_OpKernelConstruction_Failure", found.OpKernelConstruction_Failure),
          wanted("TF_GetIterId", found.GetIterId),
          wanted("TF_NumInputs", found.NumInputs),
          wanted("TF_GetInput", found.GetInput),
          wanted("TF_SetOutput", found.SetOutput),
          wanted("TF_AllocateOutput", found.AllocateOutput),
          wanted("TF_ForwardInputOrAllocateOutput", found.ForwardInputOrAllocateOutput),
          wanted("TF_OpKernelContext_Failure", found.OpKernelContext_Failure),
      });
}

}  // namespace ciranda::tensorflow
