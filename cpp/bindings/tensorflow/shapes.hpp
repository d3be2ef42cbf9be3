// shapes: infers the outputs' shapes, as far as they are known when TensorFlow builds a graph.
// Called by TensorFlow, as ops.hpp registers it; any thread.
#pragma once

#include "bindings/tensorflow/tf_api.hpp"

namespace ciranda::tensorflow {

// Each output has the shape of its input.
void infer_as_inputs(TF_ShapeInferenceContext* context, TF_Status* status);
// Each output has any number of rows, of the shape of its input's rows.
void infer_other_rows(TF_ShapeInferenceContext* context, TF_Status* status);
// The first half of the outputs as infer_other_rows(); the second half are vectors.
void infer_alltoall(TF_ShapeInferenceContext* context, TF_Status* status);
// One scalar.
void infer_scalar(TF_ShapeInferenceContext* context, TF_Status* status);
// There are no outputs.
void infer_nothing(TF_ShapeInferenceContext* context, TF_Status* status);

}  // namespace ciranda::tensorflow
