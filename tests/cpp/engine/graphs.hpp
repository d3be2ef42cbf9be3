// CUDA graphs of the fake driver, for tests of the engine: captures of a stream, and launches.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <utility>

#include "backend/cuda/driver_api.hpp"
#include "engine/fake_driver.hpp"

namespace ciranda::testing {

// A graph that was captured, and can be launched.
class Graph {
 public:
  explicit Graph(cuda::CUgraph graph) : graph_(graph) {
    EXPECT_EQ(of_fake<cuda::CUresult(Exec*, cuda::CUgraph, unsigned long long)>("cuGraphInstantiateWithFlags")(
                  &exec_, graph, 0),
              cuda::CUresult::kSuccess);
  }
  ~Graph() {
    of_fake<cuda::CUresult(Exec)>("cuGraphExecDestroy")(exec_);
    of_fake<cuda::CUresult(cuda::CUgraph)>("cuGraphDestroy")(graph_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  cuda::CUgraph captured() const { return graph_; }
  void launch(void* queue) const {
    EXPECT_EQ(of_fake<cuda::CUresult(Exec, cuda::CUstream)>("cuGraphLaunch")(exec_, static_cast<cuda::CUstream>(queue)),
              cuda::CUresult::kSuccess);
  }

 private:
  using Exec = struct CUgraphExec_st*;

  const cuda::CUgraph graph_;
  Exec exec_ = nullptr;
};

// Until end(), that stream is captured, globally, as torch does.
class Capture {
 public:
  explicit Capture(void* queue) : queue_(static_cast<cuda::CUstream>(queue)) {
    EXPECT_EQ(of_fake<cuda::CUresult(cuda::CUstream, cuda::CUstreamCaptureMode)>("cuStreamBeginCapture_v2")(
                  queue_, cuda::CUstreamCaptureMode::kGlobal),
              cuda::CUresult::kSuccess);
  }
  // A capture that was not ended has to be empty.
  ~Capture() {
    if (!has_ended_) expect_nodes(end(), 0);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  cuda::CUgraph end() {
    has_ended_ = true;
    cuda::CUgraph graph = nullptr;
    EXPECT_EQ(of_fake<cuda::CUresult(cuda::CUstream, cuda::CUgraph*)>("cuStreamEndCapture")(queue_, &graph),
              cuda::CUresult::kSuccess)
        << "the capture was spoilt";
    return graph;
  }

  static std::size_t n_nodes(cuda::CUgraph graph) {
    std::size_t n = 0;
    of_fake<cuda::CUresult(cuda::CUgraph, cuda::CUgraphNode*, std::size_t*)>("cuGraphGetNodes")(graph, nullptr, &n);
    return n;
  }
  static void expect_nodes(cuda::CUgraph graph, std::size_t n) {
    EXPECT_EQ(n_nodes(graph), n);
    of_fake<cuda::CUresult(cuda::CUgraph)>("cuGraphDestroy")(graph);
  }

 private:
  const cuda::CUstream queue_;
  bool has_ended_ = false;
};

}  // namespace ciranda::testing
