// Paddle's operators, for programs of either IR: one a collective, the pair allreduce_start and sync_comm, and look.
//
// Paddle's executor runs them in program order, because their names begin with c_ and they have an attribute ring_id.
// The engine matches the calls of ranks by the attribute name, never by order. This file is compiled with the headers
// of the oldest supported Paddle, or on the user's machine. In both cases it calls the loaded Paddle, and the engine
// through the table.
#include <paddle/phi/api/ext/op_meta_info.h>
#include <paddle/phi/api/ext/tensor_compat.h>
#include <paddle/phi/api/include/tensor.h>
#include <paddle/phi/api/include/tensor_utils.h>

#include <algorithm>
#include <ciranda/native/looks.hpp>
#include <ciranda/native/plugin.hpp>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "bindings/paddle/calls.hpp"
#include "bindings/paddle/labels.hpp"
#include "bindings/paddle/raising.hpp"
#include "bindings/paddle/runs.hpp"
#include "bindings/paddle/sampling.hpp"
#include "bindings/paddle/tensors.hpp"

CIRANDA_DEFINE_TABLE
CIRANDA_DEFINE_LOOKS

namespace ciranda::paddle_ops {
namespace {

using Tensors = std::vector<Tensor>;
using Shape = std::vector<std::int64_t>;

Started<Tensors> started;

Tensor like(const Tensor& tensor) { return ::paddle::experimental::empty_like(tensor, tensor.dtype(), tensor.place()); }

Tensor computed(const Wanted& wanted, const Tensor& input) {
  Tensor output = like(input);
  run(wanted, {describe(input, output, wanted.name)});
  return output;
}

// Runs a collective whose result has a number of rows that is not known before.
Tensor allocated(const Wanted& wanted, const Tensor& input) {
  const Described described{address_of(input), nullptr, input.shape(), dtype_of(input, wanted.name)};
  const Operation operation = run(wanted, {described});
  ciranda_output result{};
  (void)ciranda_operation_output(operation.get(), 0, &result);
  // The result is copied, because the oldest Paddle has only one deleter for all tensors in foreign memory.
  static char nothing;
  void* data = result.n_bytes > 0 ? const_cast<void*>(result.data) : &nothing;
  const Tensor view = ::paddle::from_blob(data, Shape(result.shape, result.shape + result.ndim), input.dtype(),
                                          ::phi::DataLayout::NCHW, input.place());
  return view.copy_to(input.place(), true);
}

Wanted reduction(ciranda_reduce_op op, const std::string& name, int ring) {
  return {.collective = CIRANDA_ALLREDUCE, .op = op, .name = name, .lane = ring};
}

Wanted of_rows(ciranda_collective collective, const std::string& name, int ring) {
  return {.collective = collective, .op = CIRANDA_SUM, .name = name, .lane = ring};
}

std::string gradient_of(const std::string& name) { return name + ".gradient"; }

// ---- operators that return their result

template <ciranda_reduce_op kOp>
Tensors allreduce(const Tensor& x, const std::string& name, int ring) {
  return {computed(reduction(kOp, name, ring), x)};
}

Tensors allreduce_sum_grad(const Tensor& gradient, const std::string& name, int ring) {
  return {computed(reduction(CIRANDA_SUM, gradient_of(name), ring), gradient)};
}

Tensors allgather(const Tensor& x, const std::string& name, int ring) {
  return {allocated(of_rows(CIRANDA_ALLGATHER, name, ring), x)};
}

// The number of rows of this rank, and of all ranks before it.
struct Rows {
  std::int64_t mine = 0;
  std::int64_t before = 0;
  bool are_equal = true;
};

Rows rows_of_all(std::int64_t mine, const std::string& name, int ring) {
  const Operation operation =
      run(of_rows(CIRANDA_ALLGATHER, name, ring), {Described{&mine, nullptr, {1}, CIRANDA_INT64}});
  ciranda_output result{};
  (void)ciranda_operation_output(operation.get(), 0, &result);
  const auto* rows = static_cast<const std::int64_t*>(result.data);
  const native::Context context;
  Rows found{.mine = mine};
  for (int rank = 0; rank < static_cast<int>(result.shape[0]); ++rank) {
    if (rank < ciranda_rank(context.get())) found.before += rows[rank];
    found.are_equal = found.are_equal && rows[rank] == mine;
  }
  return found;
}

Tensor numbers(const std::vector<std::int64_t>& values, const Shape& shape, const Tensor& like) {
  static std::int64_t nothing;
  void* data = values.empty() ? &nothing : const_cast<std::int64_t*>(values.data());
  const Tensor view = ::paddle::from_blob(data, shape, Theirs::INT64, ::phi::DataLayout::NCHW, like.place());
  return view.copy_to(like.place(), true);
}

// The labels of all ranks as positions in a shard of the classes. `sizes` is the shape of this rank's features.
Tensors shard_labels(const Tensor& labels, const Tensor& sizes, const std::string& name, int ring, std::int64_t first,
                     std::int64_t end, std::int64_t n_classes, int n_shards) {
  const Shard shard{first, end, n_classes, n_shards};
  const auto* given = labels.data<std::int64_t>();
  const std::vector<std::int64_t> told = tell_labels(sizes.data<std::int64_t>()[0], {given, given + labels.numel()});
  const Described described{told.data(), nullptr, {static_cast<std::int64_t>(told.size())}, CIRANDA_INT64};
  const Operation operation = run(of_rows(CIRANDA_ALLGATHER, name, ring), {described});
  ciranda_output result{};
  (void)ciranda_operation_output(operation.get(), 0, &result);
  const auto* words = static_cast<const std::int64_t*>(result.data);
  const native::Context context;
  const Labels found = place_labels({words, words + result.shape[0]}, ciranda_rank(context.get()), shard, name);
  const auto n_samples = static_cast<std::int64_t>(found.is_here.size());
  return {numbers(found.places, {n_samples, 2}, labels), numbers(found.is_here, {n_samples}, labels),
          numbers(found.is_mine, {n_samples}, labels), numbers(found.own, labels.shape(), labels),
          numbers(found.counts, {2}, labels)};
}

// Each rank gets the sum of all ranks' gradients of its own rows: by a reducescatter if all have equally many rows.
Tensors allgather_grad(const Tensor& x, const Tensor& gradient, const std::string& name, int ring) {
  const Rows rows = rows_of_all(x.shape()[0], gradient_of(name) + ".rows", ring);
  Tensor output = like(x);
  if (rows.are_equal) {
    Described described = describe(gradient, output, name);
    run(of_rows(CIRANDA_REDUCESCATTER, gradient_of(name), ring), {described});
  } else {
    const Tensor sum = computed(reduction(CIRANDA_SUM, gradient_of(name), ring), gradient);
    const std::size_t n_bytes = static_cast<std::size_t>(x.numel()) * ciranda_dtype_size(dtype_of(x, name));
    const std::size_t row_bytes = rows.mine == 0 ? 0 : n_bytes / static_cast<std::size_t>(rows.mine);
    const auto* from = static_cast<const char*>(address_of(sum)) + row_bytes * static_cast<std::size_t>(rows.before);
    if (n_bytes > 0) std::memcpy(address_of(output), from, n_bytes);
  }
  return {output};
}

Tensors reducescatter(const Tensor& x, const std::string& name, int ring) {
  return {allocated(of_rows(CIRANDA_REDUCESCATTER, name, ring), x)};
}

Tensors reducescatter_grad(const Tensor& gradient, const std::string& name, int ring) {
  return {allocated(of_rows(CIRANDA_ALLGATHER, gradient_of(name), ring), gradient)};
}

Tensors broadcast(const Tensor& x, const std::string& name, int ring, int root) {
  Wanted wanted = of_rows(CIRANDA_BROADCAST, name, ring);
  wanted.root = root;
  return {computed(wanted, x)};
}

// Returns the sum of all ranks' gradients on the root, and zeros on the others.
Tensors broadcast_grad(const Tensor& gradient, const std::string& name, int ring, int root) {
  Wanted wanted = of_rows(CIRANDA_REDUCE, gradient_of(name), ring);
  wanted.root = root;
  Tensor output = computed(wanted, gradient);
  const native::Context context;
  if (ciranda_rank(context.get()) != root) {
    const std::size_t n_bytes = static_cast<std::size_t>(output.numel()) * ciranda_dtype_size(dtype_of(output, name));
    if (n_bytes > 0) std::memset(address_of(output), 0, n_bytes);
  }
  return {output};
}

// ---- in place, in two halves

ciranda_reduce_op op_of(const std::string& op, const std::string& name) {
  for (ciranda_reduce_op each = 0; ciranda_reduce_op_name(each) != nullptr; ++each) {
    if (op == ciranda_reduce_op_name(each)) return each;
  }
  refuse(name + ": there is no reduction " + op);
}

Runs runs;

// The factors are passed as text, as operators have no attributes of double precision.
void allreduce_start(Tensors& x, const std::string& name, int ring, const std::string& op, const std::string& prescale,
                     const std::string& postscale, int every) {
  if (!runs.is_due(name, every)) {
    started.leave_out(name);
    return;
  }
  Wanted wanted = reduction(op_of(op, name), name, ring);
  wanted.prescale = std::stod(prescale);
  wanted.postscale = std::stod(postscale);
  wanted.flags = CIRANDA_REQUEST_DEFERRABLE;
  std::vector<Described> described;
  for (const Tensor& each : x) described.push_back(describe(each, each, name));
  started.start(wanted, described, x);
}

// Returns the classes of the shard that are used in this run, and the labels' positions among them.
Tensors sample_labels(const Tensor& places, const Tensor& is_here, const std::string& name, int /*ring*/,
                      std::int64_t n_classes, std::int64_t n_wanted, std::int64_t seed, std::int64_t shard) {
  const auto n_samples = is_here.numel();
  const auto* given = places.data<std::int64_t>();
  const auto* here = is_here.data<std::int64_t>();
  Shape present;
  for (std::int64_t sample = 0; sample < n_samples; ++sample) {
    if (here[sample] != 0) present.push_back(given[2 * sample + 1]);
  }
  std::sort(present.begin(), present.end());
  present.erase(std::unique(present.begin(), present.end()), present.end());
  const Shape chosen =
      sample_classes(n_classes, std::move(present), n_wanted, sampling_state(seed, runs.next(name), shard));
  Shape among(given, given + 2 * n_samples);
  for (std::int64_t sample = 0; sample < n_samples; ++sample) {
    if (here[sample] == 0) continue;
    std::int64_t& column = among[static_cast<std::size_t>(2 * sample + 1)];
    column = std::lower_bound(chosen.begin(), chosen.end(), column) - chosen.begin();
  }
  return {numbers(chosen, {static_cast<std::int64_t>(chosen.size())}, places), numbers(among, {n_samples, 2}, places)};
}

void sync_comm(Tensors& /*x*/, const std::vector<std::string>& names, int /*ring*/) { started.finish(names); }

// Passes the tensors to Python's function as long as it wants them (ciranda/native/looks.hpp), which may wait for other
// ranks. The first argument is the tensors' sizes in bytes, since a tensor may differ from the program's. The result
// has no meaning.
Tensors look(const Tensors& x, const std::string& name, int /*ring*/) {
  std::vector<std::int64_t> sizes;
  std::vector<const void*> data;
  for (const Tensor& each : x) {
    sizes.push_back(each.numel() * static_cast<std::int64_t>(ciranda_dtype_size(dtype_of(each, name))));
    data.push_back(address_of(each));
  }
  data.insert(data.begin(), sizes.data());
  const native::Looks::Outcome seen = native::looks().show(name, data);
  if (seen.status != CIRANDA_OK) fail(seen.status, seen.message);
  return {numbers({0}, {1}, x.front())};
}

// ---- shapes

template <typename... Attributes>
std::vector<Shape> same_shape(const Shape& x, const Attributes&...) {
  return {x};
}

// The number of rows (-1) is unknown: it depends on the number of ranks, which programs do not contain.
std::vector<Shape> other_rows(const Shape& x, const std::string& name, int /*ring*/) {
  if (x.empty()) refuse(name + ": a scalar has no rows to gather or scatter");
  Shape shape = x;
  shape[0] = -1;
  return {shape};
}

std::vector<Shape> shape_of_first(const Shape& x, const Shape& /*gradient*/, const std::string&, int) { return {x}; }

std::vector<Shape> shapes_of_labels(const Shape& labels, const Shape& /*sizes*/, const std::string&, int, std::int64_t,
                                    std::int64_t, std::int64_t, int) {
  return {{-1, 2}, {-1}, {-1}, labels, {2}};
}

std::vector<Shape> shapes_of_sample(const Shape& places, const Shape& /*is_here*/, const std::string&, int,
                                    std::int64_t, std::int64_t, std::int64_t, std::int64_t) {
  return {{-1}, places};
}

std::vector<Theirs> types_of_sample(const Theirs& places, const Theirs& /*is_here*/) { return {places, places}; }

std::vector<Theirs> types_of_labels(const Theirs& labels, const Theirs& /*sizes*/) {
  return {labels, labels, labels, labels, labels};
}

std::vector<Theirs> type_of_first(const Theirs& x, const Theirs& /*gradient*/) { return {x}; }

std::vector<Shape> shape_of_look(const std::vector<Shape>& /*x*/, const std::string&, int) { return {{1}}; }

std::vector<Theirs> type_of_look(const std::vector<Theirs>& /*x*/) { return {Theirs::INT64}; }

// The error if the gradient of an operator without one is requested: in static graphs when the program is built.
constexpr const char* kNoGradient =
    " has no gradient: the allreduce of this type is not differentiable. Detach its input or its result (stop_gradient "
    "= True)";

std::vector<Shape> no_gradient_shape(const Shape& /*gradient*/, const std::string& name, int /*ring*/) {
  refuse(name + kNoGradient);
}

Tensors no_gradient(const Tensor& /*gradient*/, const std::string& name, int /*ring*/) { refuse(name + kNoGradient); }

}  // namespace

void raise(const std::string& message) { raise_theirs(message, __FILE__, __LINE__); }

}  // namespace ciranda::paddle_ops

namespace ours = ciranda::paddle_ops;

#define CIRANDA_ATTRIBUTES \
  { "name: std::string", "ring_id: int" }

PD_BUILD_OP(c_ciranda_allreduce_sum)
    .Inputs({"X"})
    .Outputs({"Out"})
    .Attrs(CIRANDA_ATTRIBUTES)
    .SetKernelFn(PD_KERNEL(ours::allreduce<CIRANDA_SUM>))
    .SetInferShapeFn(PD_INFER_SHAPE((ours::same_shape<std::string, int>)));

PD_BUILD_GRAD_OP(c_ciranda_allreduce_sum)
    .Inputs({paddle::Grad("Out")})
    .Outputs({paddle::Grad("X")})
    .Attrs(CIRANDA_ATTRIBUTES)
    .SetKernelFn(PD_KERNEL(ours::allreduce_sum_grad))
    .SetInferShapeFn(PD_INFER_SHAPE((ours::same_shape<std::string, int>)));

#define CIRANDA_WITHOUT_GRADIENT(type, op)                                    \
  PD_BUILD_OP(c_ciranda_allreduce_##type)                                     \
      .Inputs({"X"})                                                          \
      .Outputs({"Out"})                                                       \
      .Attrs(CIRANDA_ATTRIBUTES)                                              \
      .SetKernelFn(PD_KERNEL(ours::allreduce<op>))                            \
      .SetInferShapeFn(PD_INFER_SHAPE((ours::same_shape<std::string, int>))); \
  PD_BUILD_GRAD_OP(c_ciranda_allreduce_##type)                                \
      .Inputs({paddle::Grad("Out")})                                          \
      .Outputs({paddle::Grad("X")})                                           \
      .Attrs(CIRANDA_ATTRIBUTES)                                              \
      .SetKernelFn(PD_KERNEL(ours::no_gradient))                              \
      .SetInferShapeFn(PD_INFER_SHAPE(ours::no_gradient_shape))

CIRANDA_WITHOUT_GRADIENT(max, CIRANDA_MAX);
CIRANDA_WITHOUT_GRADIENT(min, CIRANDA_MIN);
CIRANDA_WITHOUT_GRADIENT(prod, CIRANDA_PRODUCT);

PD_BUILD_OP(c_ciranda_allgather)
    .Inputs({"X"})
    .Outputs({"Out"})
    .Attrs(CIRANDA_ATTRIBUTES)
    .SetKernelFn(PD_KERNEL(ours::allgather))
    .SetInferShapeFn(PD_INFER_SHAPE(ours::other_rows));

PD_BUILD_GRAD_OP(c_ciranda_allgather)
    .Inputs({"X", paddle::Grad("Out")})
    .Outputs({paddle::Grad("X")})
    .Attrs(CIRANDA_ATTRIBUTES)
    .SetKernelFn(PD_KERNEL(ours::allgather_grad))
    .SetInferShapeFn(PD_INFER_SHAPE(ours::shape_of_first))
    .SetInferDtypeFn(PD_INFER_DTYPE(ours::type_of_first));

PD_BUILD_OP(c_ciranda_reducescatter)
    .Inputs({"X"})
    .Outputs({"Out"})
    .Attrs(CIRANDA_ATTRIBUTES)
    .SetKernelFn(PD_KERNEL(ours::reducescatter))
    .SetInferShapeFn(PD_INFER_SHAPE(ours::other_rows));

PD_BUILD_GRAD_OP(c_ciranda_reducescatter)
    .Inputs({paddle::Grad("Out")})
    .Outputs({paddle::Grad("X")})
    .Attrs(CIRANDA_ATTRIBUTES)
    .SetKernelFn(PD_KERNEL(ours::reducescatter_grad))
    .SetInferShapeFn(PD_INFER_SHAPE(ours::other_rows));

PD_BUILD_OP(c_ciranda_broadcast)
    .Inputs({"X"})
    .Outputs({"Out"})
    .Attrs({"name: std::string", "ring_id: int", "root: int"})
    .SetKernelFn(PD_KERNEL(ours::broadcast))
    .SetInferShapeFn(PD_INFER_SHAPE((ours::same_shape<std::string, int, int>)));

PD_BUILD_GRAD_OP(c_ciranda_broadcast)
    .Inputs({paddle::Grad("Out")})
    .Outputs({paddle::Grad("X")})
    .Attrs({"name: std::string", "ring_id: int", "root: int"})
    .SetKernelFn(PD_KERNEL(ours::broadcast_grad))
    .SetInferShapeFn(PD_INFER_SHAPE((ours::same_shape<std::string, int, int>)));

PD_BUILD_OP(c_ciranda_shard_labels)
    .Inputs({"X", "Shape"})
    .Outputs({"Places", "IsHere", "IsMine", "Own", "Counts"})
    .Attrs({"name: std::string", "ring_id: int", "first: int64_t", "end: int64_t", "n_classes: int64_t",
            "n_shards: int"})
    .SetKernelFn(PD_KERNEL(ours::shard_labels))
    .SetInferShapeFn(PD_INFER_SHAPE(ours::shapes_of_labels))
    .SetInferDtypeFn(PD_INFER_DTYPE(ours::types_of_labels));

PD_BUILD_OP(c_ciranda_sample_labels)
    .Inputs({"X", "IsHere"})
    .Outputs({"Chosen", "Places"})
    .Attrs({"name: std::string", "ring_id: int", "n_classes: int64_t", "n_wanted: int64_t", "seed: int64_t",
            "shard: int64_t"})
    .SetKernelFn(PD_KERNEL(ours::sample_labels))
    .SetInferShapeFn(PD_INFER_SHAPE(ours::shapes_of_sample))
    .SetInferDtypeFn(PD_INFER_DTYPE(ours::types_of_sample));

PD_BUILD_OP(c_ciranda_allreduce_start)
    .Inputs({paddle::Vec("X")})
    .Outputs({paddle::Vec("Out")})
    .Attrs({"name: std::string", "ring_id: int", "op: std::string", "prescale: std::string", "postscale: std::string",
            "every: int"})
    .SetInplaceMap({{paddle::Vec("X"), paddle::Vec("Out")}})
    .SetKernelFn(PD_KERNEL(ours::allreduce_start));

PD_BUILD_OP(c_ciranda_sync_comm)
    .Inputs({paddle::Vec("X")})
    .Outputs({paddle::Vec("Out")})
    .Attrs({"names: std::vector<std::string>", "ring_id: int"})
    .SetInplaceMap({{paddle::Vec("X"), paddle::Vec("Out")}})
    .SetKernelFn(PD_KERNEL(ours::sync_comm));

PD_BUILD_OP(c_ciranda_look)
    .Inputs({paddle::Vec("X")})
    .Outputs({"Out"})
    .Attrs(CIRANDA_ATTRIBUTES)
    .SetKernelFn(PD_KERNEL(ours::look))
    .SetInferShapeFn(PD_INFER_SHAPE(ours::shape_of_look))
    .SetInferDtypeFn(PD_INFER_DTYPE(ours::type_of_look));

ciranda_status ciranda_plugin_open(const ciranda_table* table, const char* /*framework_version*/, char* message,
                                   size_t message_capacity) {
  return ciranda_use_table(table, message, message_capacity);
}

int64_t ciranda_plugin_live_calls() { return ours::started.count(); }

extern "C" void ciranda_paddle_set_interval(const char* name, int every) { ours::runs.set_interval(name, every); }

extern "C" void ciranda_paddle_begin_anew() { ours::runs.begin_anew(); }
