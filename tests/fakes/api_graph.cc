// CUDA graphs. The functions on captures are never counted: no work of a program depends on them.
#include <memory>
#include <utility>

#include "call.hpp"
#include "exports.hpp"
#include "graph.hpp"

namespace ciranda::fakes {

using cuda::CUstreamCaptureStatus;

CUresult cuStreamBeginCapture_v2(CUstream handle, cuda::CUstreamCaptureMode mode) {
  const auto stream = current_context()->find(handle);
  return stream == nullptr ? CUresult::kInvalidHandle : captures().begin(*stream, mode);
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  const auto stream = current_context()->find(handle);
  return stream == nullptr ? CUresult::kInvalidHandle : captures().end(*stream, *graph);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus* status, std::uint64_t* id, CUgraph* graph,
                                   const cuda::CUgraphNode**, std::size_t*) {
  Context* const context = current_context();
  const auto stream = context == nullptr ? nullptr : context->find(handle);
  if (stream == nullptr) return CUresult::kInvalidHandle;
  if (captures().hold_up(*stream)) return CUresult::kStreamCaptureImplicit;
  const Captures::Info info = captures().info(*stream);
  *status = info.status;
  if (id != nullptr) *id = info.id;
  if (graph != nullptr) *graph = info.graph;
  return CUresult::kSuccess;
}

CUresult cuThreadExchangeStreamCaptureMode(cuda::CUstreamCaptureMode* mode) {
  std::swap(*mode, capture_mode());
  return CUresult::kSuccess;
}

CUresult cuGraphGetNodes(CUgraph handle, cuda::CUgraphNode*, std::size_t* n_nodes) {
  const auto graph = graphs().find(handle);
  if (graph == nullptr) return CUresult::kInvalidHandle;
  *n_nodes = graph->nodes().size();
  return CUresult::kSuccess;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph handle, unsigned long long) {
  return in_context("cuGraphInstantiateWithFlags", [&](Context& context) {
    const auto graph = graphs().find(handle);
    if (graph == nullptr) return CUresult::kInvalidHandle;
    *exec = graph_execs().add(std::make_shared<GraphExec>(context, graph));
    return CUresult::kSuccess;
  });
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream into) {
  return on_stream("cuGraphLaunch", into, [&](Context&, Stream& stream) {
    const auto exec = graph_execs().find(handle);
    if (captures().now(stream)) return CUresult::kStreamCaptureUnsupported;  // not imitated
    return exec == nullptr ? CUresult::kInvalidHandle : exec->launch(stream);
  });
}

// What a launch has given is done all the same.
CUresult cuGraphExecDestroy(CUgraphExec exec) {
  return graph_execs().remove(exec) == nullptr ? CUresult::kInvalidHandle : CUresult::kSuccess;
}

CUresult cuGraphDestroy(CUgraph graph) {
  return graphs().remove(graph) == nullptr ? CUresult::kInvalidHandle : CUresult::kSuccess;
}

CUresult cuUserObjectCreate(CUuserObject* object, void* pointer, CUhostFn destroy, unsigned n_references,
                            unsigned flags) {
  if (n_references != 1 || flags != cuda::kUserObjectNoDestructorSync) return CUresult::kInvalidValue;
  *object = user_objects().add(std::make_shared<std::shared_ptr<void>>(user_object(pointer, destroy)));
  return CUresult::kSuccess;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned) {
  return user_objects().remove(object) == nullptr ? CUresult::kInvalidHandle : CUresult::kSuccess;
}

// The caller's reference becomes the graph's.
CUresult cuGraphRetainUserObject(CUgraph handle, CUuserObject object, unsigned, unsigned flags) {
  const auto graph = graphs().find(handle);
  if (graph == nullptr || flags != cuda::kGraphUserObjectMove) return CUresult::kInvalidValue;
  const auto moved = user_objects().remove(object);
  if (moved == nullptr) return CUresult::kInvalidHandle;
  graph->keep(*moved);
  return CUresult::kSuccess;
}

}  // namespace ciranda::fakes
