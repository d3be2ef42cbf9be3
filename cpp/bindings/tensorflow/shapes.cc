#include "bindings/tensorflow/shapes.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

namespace ciranda::tensorflow {
namespace {

struct DeleteShape {
  void operator()(TF_ShapeHandle* shape) const noexcept { tf().DeleteShapeHandle(shape); }
};
using Shape = std::unique_ptr<TF_ShapeHandle, DeleteShape>;

bool ok(const TF_Status* status) { return tf().GetCode(status) == kOk; }

Shape any_vector(TF_ShapeInferenceContext* context) {
  constexpr std::int64_t kUnknown = -1;
  return Shape(tf().ShapeInferenceContextVectorFromSize(context, static_cast<std::size_t>(kUnknown)));
}

void set(TF_ShapeInferenceContext* context, int index, const Shape& shape, TF_Status* status) {
  tf().ShapeInferenceContextSetOutput(context, index, shape.get(), status);
}

void infer_rows(TF_ShapeInferenceContext* context, int n_tensors, TF_Status* status) {
  for (int i = 0; i < n_tensors && ok(status); ++i) {
    const Shape shape(tf().NewShapeHandle());
    tf().ShapeInferenceContextGetInput(context, i, shape.get(), status);
    if (!ok(status)) return;
    const bool has_rows = tf().ShapeInferenceContextRankKnown(context, shape.get()) != 0 &&
                          tf().ShapeInferenceContextRank(context, shape.get()) > 0;
    if (!has_rows) {  // the rank is unknown, or it is a scalar, which the kernel refuses
      set(context, i, shape, status);
      continue;
    }
    constexpr std::int64_t kToTheEnd = std::numeric_limits<std::int64_t>::max();
    const Shape row(tf().NewShapeHandle());
    const Shape rows(tf().NewShapeHandle());
    tf().ShapeInferenceContextSubshape(context, shape.get(), 1, kToTheEnd, row.get(), status);
    if (!ok(status)) return;
    tf().ShapeInferenceContextConcatenateShapes(context, any_vector(context).get(), row.get(), rows.get(), status);
    if (ok(status)) set(context, i, rows, status);
  }
}

}  // namespace

void infer_as_inputs(TF_ShapeInferenceContext* context, TF_Status* status) {
  const int n_tensors = static_cast<int>(tf().ShapeInferenceContextNumInputs(context));
  for (int i = 0; i < n_tensors && ok(status); ++i) {
    const Shape shape(tf().NewShapeHandle());
    tf().ShapeInferenceContextGetInput(context, i, shape.get(), status);
    if (ok(status)) set(context, i, shape, status);
  }
}

void infer_other_rows(TF_ShapeInferenceContext* context, TF_Status* status) {
  infer_rows(context, static_cast<int>(tf().ShapeInferenceContextNumInputs(context)), status);
}

void infer_alltoall(TF_ShapeInferenceContext* context, TF_Status* status) {
  const int n_tensors = static_cast<int>(tf().ShapeInferenceContextNumInputs(context)) / 2;
  infer_rows(context, n_tensors, status);
  const Shape counts = any_vector(context);
  for (int i = 0; i < n_tensors && ok(status); ++i) set(context, n_tensors + i, counts, status);
}

void infer_scalar(TF_ShapeInferenceContext* context, TF_Status* status) {
  set(context, 0, Shape(tf().ShapeInferenceContextScalar(context)), status);
}

void infer_nothing(TF_ShapeInferenceContext* /*context*/, TF_Status* /*status*/) {}

}  // namespace ciranda::tensorflow
