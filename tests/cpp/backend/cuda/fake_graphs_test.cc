// What the fake driver promises of CUDA graphs: captures over several streams, launches, and what they keep.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "backend/cuda/fake_gpu.hpp"
#include "backend/cuda/fake_process.hpp"

namespace ciranda::cuda::testing {
namespace {

using CUgraphExec = struct CUgraphExec_st*;

template <typename Function>
Function* of_fake(const char* name) {
  return reinterpret_cast<Function*>(dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), name));
}

void begin_capture(CUstream stream) {
  expect_success(
      of_fake<CUresult(CUstream, CUstreamCaptureMode)>("cuStreamBeginCapture_v2")(stream, CUstreamCaptureMode::kGlobal),
      "cuStreamBeginCapture");
}

CUresult end_capture(CUstream stream, CUgraph& graph) {
  return of_fake<CUresult(CUstream, CUgraph*)>("cuStreamEndCapture")(stream, &graph);
}

CUgraph graph_of(CUstream stream) {
  CUgraph graph = nullptr;
  expect_success(end_capture(stream, graph), "cuStreamEndCapture");
  return graph;
}

CUgraphExec instantiate(CUgraph graph) {
  CUgraphExec exec = nullptr;
  expect_success(
      of_fake<CUresult(CUgraphExec*, CUgraph, unsigned long long)>("cuGraphInstantiateWithFlags")(&exec, graph, 0),
      "cuGraphInstantiate");
  return exec;
}

void launch(CUgraphExec exec, CUstream stream) {
  expect_success(of_fake<CUresult(CUgraphExec, CUstream)>("cuGraphLaunch")(exec, stream), "cuGraphLaunch");
}

void destroy(CUgraph graph) { of_fake<CUresult(CUgraph)>("cuGraphDestroy")(graph); }
void destroy(CUgraphExec exec) { of_fake<CUresult(CUgraphExec)>("cuGraphExecDestroy")(exec); }

void wait_for(const Gpu& gpu, CUstream stream, CUstream other) {
  expect_success(gpu->cuStreamWaitEvent(stream, gpu.record(other), 0), "cuStreamWaitEvent");
}

struct Streams {
  const Gpu gpu;
  CUstream one = gpu.make_stream();
  CUstream two = gpu.make_stream();
  CUdeviceptr a = gpu.allocate(64);
  CUdeviceptr b = gpu.allocate(64);
};

TEST(FakeCudaGraphs, DoNothingBeforeTheyAreLaunchedAndThenAllOfIt) {
  expect_passes({{"FAKE_CUDA_DELAY_SEED", "3"}}, [] {
    const Streams s;
    s.gpu.fill(s.b, 1, 64, s.one);
    begin_capture(s.one);
    s.gpu.launch_copy(s.a, s.b, 64, s.one);
    wait_for(s.gpu, s.two, s.one);
    s.gpu.launch_add(s.b, s.a, 64, s.two);  // joins
    wait_for(s.gpu, s.one, s.two);
    s.gpu.launch_add(s.a, s.b, 64, s.one);
    const CUgraph graph = graph_of(s.one);
    EXPECT_EQ(s.gpu.read(s.b, 1, s.one), std::vector<int>({1}));
    const CUgraphExec exec = instantiate(graph);
    launch(exec, s.one);  // a = 1, b = 2, a = 3
    EXPECT_EQ(s.gpu.read(s.a, 1, s.one), std::vector<int>({3}));
    s.gpu.fill(s.b, 5, 64, s.one);
    launch(exec, s.one);
    launch(exec, s.one);  // a = 5, b = 10; a = 10, b = 20, a = 30
    EXPECT_EQ(s.gpu.read(s.a, 1, s.one), std::vector<int>({30}));
    s.gpu.fill(s.a, 0, 64, s.two);  // no part of a capture any more
    s.gpu.synchronize(s.two);
  });
}

TEST(FakeCudaGraphs, OrderNothingThatTheirEventsDoNot) {
  expect_aborts(
      {},
      [] {
        const Streams s;
        begin_capture(s.one);
        wait_for(s.gpu, s.two, s.one);
        s.gpu.fill(s.a, 1, 64, s.one);
        s.gpu.fill(s.a, 2, 64, s.two);
        wait_for(s.gpu, s.one, s.two);
        launch(instantiate(graph_of(s.one)), s.one);
      },
      "two uses of memory that nothing orders");
  expect_aborts(
      {},
      [] {
        const Streams s;
        begin_capture(s.one);
        s.gpu.fill(s.a, 1, 64, s.one);
        launch(instantiate(graph_of(s.one)), s.one);
        s.gpu.fill(s.a, 2, 64, s.two);
      },
      "two uses of memory that nothing orders");
}

TEST(FakeCudaGraphs, AreSpoiltByStreamsThatAreNotJoinedAndByEventsThatAreAsked) {
  expect_passes({}, [] {
    const Streams s;
    CUgraph graph = nullptr;
    begin_capture(s.one);
    wait_for(s.gpu, s.two, s.one);
    s.gpu.fill(s.a, 1, 64, s.two);
    EXPECT_EQ(end_capture(s.one, graph), CUresult::kStreamCaptureUnjoined);
    begin_capture(s.one);
    EXPECT_EQ(s.gpu->cuEventQuery(s.gpu.record(s.one)), CUresult::kStreamCaptureUnsupported);
    EXPECT_EQ(end_capture(s.one, graph), CUresult::kStreamCaptureInvalidated);
    CUevent before = s.gpu.record(s.two);
    begin_capture(s.one);
    EXPECT_EQ(s.gpu->cuStreamWaitEvent(s.one, before, 0), CUresult::kStreamCaptureIsolation);
    EXPECT_EQ(end_capture(s.one, graph), CUresult::kStreamCaptureInvalidated);
    begin_capture(s.one);
    begin_capture(s.two);
    EXPECT_EQ(s.gpu->cuStreamWaitEvent(s.one, s.gpu.record(s.two), 0), CUresult::kStreamCaptureMerge);
    EXPECT_EQ(end_capture(s.one, graph), CUresult::kStreamCaptureInvalidated);
    EXPECT_EQ(end_capture(s.two, graph), CUresult::kStreamCaptureInvalidated);
    begin_capture(s.one);
    CUevent captured = s.gpu.record(s.one);
    destroy(graph_of(s.one));
    EXPECT_EQ(s.gpu->cuStreamWaitEvent(s.two, captured, 0), CUresult::kCapturedEvent);
  });
}

TEST(FakeCudaGraphs, KeepUserObjectsUntilTheGraphAndItsInstancesHaveEnded) {
  expect_passes({}, [] {
    const Streams s;
    static std::atomic<bool> is_dropped{false};
    begin_capture(s.one);
    s.gpu.fill(s.a, 1, 64, s.one);
    auto state = CUstreamCaptureStatus::kNone;
    std::uint64_t id = 0;
    CUgraph graph = nullptr;
    expect_success(s.gpu->cuStreamGetCaptureInfo(s.one, &state, &id, &graph, nullptr, nullptr), "capture info");
    EXPECT_NE(id, 0U);
    CUuserObject object = nullptr;
    const CUhostFn drop = [](void*) { is_dropped.store(true); };
    expect_success(s.gpu->cuUserObjectCreate(&object, &is_dropped, drop, 1, kUserObjectNoDestructorSync), "create");
    expect_success(s.gpu->cuGraphRetainUserObject(graph, object, 1, kGraphUserObjectMove), "retain");
    EXPECT_EQ(graph_of(s.one), graph);
    const CUgraphExec exec = instantiate(graph);
    destroy(graph);
    launch(exec, s.one);
    s.gpu.synchronize(s.one);
    EXPECT_FALSE(is_dropped.load());
    destroy(exec);
    for (int i = 0; i < 1000 && !is_dropped.load(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(is_dropped.load());
  });
}

}  // namespace
}  // namespace ciranda::cuda::testing
