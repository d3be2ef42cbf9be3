#include "bindings/tensorflow/ops.hpp"

#include <ciranda/native/looks.hpp>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/tensorflow/attributes.hpp"
#include "bindings/tensorflow/rank_info.hpp"
#include "bindings/tensorflow/run.hpp"
#include "bindings/tensorflow/shapes.hpp"
#include "bindings/tensorflow/tables.hpp"
#include "bindings/tensorflow/tf_api.hpp"

namespace ciranda::tensorflow {
namespace {

using Outputs = Run::Outputs;

// --- kernels: the object of a node's kernel is its Attributes

void* read_attributes(TF_OpKernelConstruction* construction) {
  const Status status;
  auto attributes = std::make_unique<Attributes>(Attributes::read(construction, status));
  if (!status.ok()) {
    tf().OpKernelConstruction_Failure(construction, status.get());
    return nullptr;
  }
  return attributes.release();
}

void forget_attributes(void* kernel) { std::unique_ptr<Attributes> gone(static_cast<Attributes*>(kernel)); }

template <ciranda_collective kCollective, Outputs kOutputs, bool kHasSplits = false>
void compute(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) {
  auto run = std::make_unique<Run>(context, copy_of(done));
  if (run->prepare(kOutputs, kHasSplits)) {
    Run::submit(std::move(run), *static_cast<const Attributes*>(kernel), kCollective);
  }
}

// --- ranks and sizes

struct RankInfoKernel {
  RankInfo what;
  std::uint32_t process_set;
};

void* read_rank_info(TF_OpKernelConstruction* construction) {
  const Status status;
  std::int64_t what = 0;
  std::int64_t process_set = 0;
  tf().OpKernelConstruction_GetAttrInt64(construction, "place", &what, status.get());
  if (status.ok()) tf().OpKernelConstruction_GetAttrInt64(construction, "process_set", &process_set, status.get());
  if (!status.ok()) {
    tf().OpKernelConstruction_Failure(construction, status.get());
    return nullptr;
  }
  return std::make_unique<RankInfoKernel>(
             RankInfoKernel{static_cast<RankInfo>(what), static_cast<std::uint32_t>(process_set)})
      .release();
}

void forget_rank_info(void* kernel) { std::unique_ptr<RankInfoKernel> gone(static_cast<RankInfoKernel*>(kernel)); }

// Ends a kernel: sets its output to the number, or reports the failure.
void answer(TF_OpKernelContext* context, std::int32_t number, const Status& status) {
  Tensor tensor;
  if (status.ok()) {
    tensor.reset(tf().AllocateOutput(context, 0, kInt32, nullptr, 0, sizeof(std::int32_t), status.get()));
  }
  if (!status.ok()) return tf().OpKernelContext_Failure(context, status.get());
  *static_cast<std::int32_t*>(tf().TensorData(tensor.get())) = number;
}

void compute_rank_info(void* kernel, TF_OpKernelContext* context) {
  const auto& wanted = *static_cast<const RankInfoKernel*>(kernel);
  const Found found = find_rank_info(wanted.what, wanted.process_set);
  answer(context, found.number, Status(found.problem.empty() ? kOk : kInvalidArgument, found.problem));
}

// --- looks

void* read_look(TF_OpKernelConstruction* construction) {
  const Status status;
  auto name = std::make_unique<std::string>(read_string(construction, "look", status));
  if (!status.ok()) {
    tf().OpKernelConstruction_Failure(construction, status.get());
    return nullptr;
  }
  return name.release();
}

void forget_look(void* kernel) { std::unique_ptr<std::string> gone(static_cast<std::string*>(kernel)); }

void compute_look(void* kernel, TF_OpKernelContext* context) {
  std::vector<Tensor> tensors;
  std::vector<const void*> data;
  for (int i = 0; i < tf().NumInputs(context); ++i) {
    const Status status;
    TF_Tensor* input = nullptr;
    tf().GetInput(context, i, &input, status.get());
    if (!status.ok()) return tf().OpKernelContext_Failure(context, status.get());
    tensors.emplace_back(input);
    data.push_back(tf().TensorData(input));
  }
  const native::Looks::Outcome seen = native::looks().show(*static_cast<const std::string*>(kernel), data);
  const Status status(kCodes.theirs(seen.status).value_or(kInternal),
                      seen.message.empty() ? "" : std::string(ciranda_status_name(seen.status)) + ": " + seen.message);
  answer(context, 0, status);
}

// --- definitions

class Definition {
 public:
  explicit Definition(const char* name) : builder_(tf().NewOpDefinitionBuilder(name)) {
    tf().OpDefinitionBuilderSetIsStateful(builder_, true);
  }

  Definition& attribute(const std::string& spec) {
    tf().OpDefinitionBuilderAddAttr(builder_, spec.c_str());
    return *this;
  }
  Definition& all_attributes() {
    for (const char* spec : kAttributeSpecs) attribute(spec);
    return *this;
  }
  Definition& input(const char* spec) {
    tf().OpDefinitionBuilderAddInput(builder_, spec);
    return *this;
  }
  Definition& output(const char* spec) {
    tf().OpDefinitionBuilderAddOutput(builder_, spec);
    return *this;
  }
  // Returns an error; "" on success.
  std::string define(InferShapes infer) {
    const Status status;
    tf().OpDefinitionBuilderSetShapeInferenceFunction(builder_, infer);
    tf().RegisterOpDefinition(builder_, status.get());
    return status.ok() ? "" : status.message();
  }

 private:
  TF_OpDefinitionBuilder* builder_;  // freed by RegisterOpDefinition()
};

std::string register_kernel(const char* name, TF_KernelBuilder* builder) {
  const Status status;
  tf().RegisterKernelBuilder(name, builder, status.get());
  return status.ok() ? "" : status.message();
}

constexpr const char* kDevice = "CPU";

std::string register_tensors_op(const char* name, ComputeAsync compute_async, InferShapes infer) {
  const std::string problem = Definition(name)
                                  .attribute("T: list({" + std::string(kDtypesSpec) + "}) >= 1")
                                  .all_attributes()
                                  .input("tensors: T")
                                  .output("outputs: T")
                                  .define(infer);
  if (!problem.empty()) return problem;
  return register_kernel(
      name, tf().NewAsyncKernelBuilder(name, kDevice, &read_attributes, compute_async, &forget_attributes));
}

std::string register_alltoall(const char* name) {
  const std::string problem = Definition(name)
                                  .attribute("T: list({" + std::string(kDtypesSpec) + "}) >= 1")
                                  .attribute("N: int >= 1")
                                  .attribute("S: {int32, int64}")
                                  .all_attributes()
                                  .input("tensors: T")
                                  .input("splits: N * S")
                                  .output("outputs: T")
                                  .output("received_splits: N * S")
                                  .define(&infer_alltoall);
  if (!problem.empty()) return problem;
  constexpr auto kCompute = &compute<CIRANDA_ALLTOALL, Outputs::kAllocatedByEngine, true>;
  return register_kernel(name,
                         tf().NewAsyncKernelBuilder(name, kDevice, &read_attributes, kCompute, &forget_attributes));
}

std::string register_without_tensors(const char* name, ComputeAsync compute_async, bool has_value) {
  Definition definition(name);
  definition.all_attributes();
  if (has_value) definition.output("value: int32");
  const std::string problem = definition.define(has_value ? &infer_scalar : &infer_nothing);
  if (!problem.empty()) return problem;
  return register_kernel(
      name, tf().NewAsyncKernelBuilder(name, kDevice, &read_attributes, compute_async, &forget_attributes));
}

std::string register_rank_info() {
  constexpr const char* kName = "CirandaPlace";
  const std::string problem = Definition(kName)
                                  .attribute("place: int")
                                  .attribute("process_set: int")
                                  .output("value: int32")
                                  .define(&infer_scalar);
  if (!problem.empty()) return problem;
  return register_kernel(kName,
                         tf().NewKernelBuilder(kName, kDevice, &read_rank_info, &compute_rank_info, &forget_rank_info));
}

std::string register_look() {
  constexpr const char* kName = "CirandaLook";
  const std::string problem = Definition(kName)
                                  .attribute("T: list({" + std::string(kDtypesSpec) + "}) >= 1")
                                  .attribute("look: string")
                                  .input("tensors: T")
                                  .output("value: int32")
                                  .define(&infer_scalar);
  if (!problem.empty()) return problem;
  return register_kernel(kName, tf().NewKernelBuilder(kName, kDevice, &read_look, &compute_look, &forget_look));
}

}  // namespace

std::string register_ops() {
  constexpr auto kAllreduce = &compute<CIRANDA_ALLREDUCE, Outputs::kAsInputs>;
  constexpr auto kBroadcast = &compute<CIRANDA_BROADCAST, Outputs::kAsInputs>;
  constexpr auto kAllgather = &compute<CIRANDA_ALLGATHER, Outputs::kAllocatedByEngine>;
  constexpr auto kReducescatter = &compute<CIRANDA_REDUCESCATTER, Outputs::kAllocatedByEngine>;
  for (const std::string& problem : {
           register_tensors_op("CirandaAllreduce", kAllreduce, &infer_as_inputs),
           register_tensors_op("CirandaBroadcast", kBroadcast, &infer_as_inputs),
           register_tensors_op("CirandaAllgather", kAllgather, &infer_other_rows),
           register_tensors_op("CirandaReducescatter", kReducescatter, &infer_other_rows),
           register_alltoall("CirandaAlltoall"),
           register_without_tensors("CirandaBarrier", &compute<CIRANDA_BARRIER, Outputs::kNone>, false),
           register_without_tensors("CirandaJoin", &compute<CIRANDA_JOIN, Outputs::kValue>, true),
           register_rank_info(),
           register_look(),
       }) {
    if (!problem.empty()) return problem;
  }
  return "";
}

}  // namespace ciranda::tensorflow
