// Graph: what captured streams were given, as nodes, each with those that come before it. GraphExec: a copy of one that
// can be launched. A launch gives each node to a stream of the graph's own for the stream in which it was captured, so
// the checker orders nodes by what the graph says alone, and each launch after the one before.
//
// Threads: a graph is changed with the lock of Captures, and by nobody once the capture is over.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "context.hpp"
#include "handles.hpp"
#include "stream.hpp"
#include "types.hpp"

namespace ciranda::fakes {

class Graph {
 public:
  Graph() = default;
  // Who is told of this by what the graph keeps knows that all launches are done.
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  using Nodes = std::vector<std::size_t>;  // by their numbers
  struct Node {
    Launch launch;
    std::size_t stream;  // among those of the capture
    Nodes after;
  };

  std::size_t add(Node node) {
    nodes_.push_back(std::move(node));
    return nodes_.size() - 1;
  }
  // A launch is done. Any thread.
  void note_done(const VectorClock& clock) const;
  // Until the graph and its copies are destroyed.
  void keep(std::shared_ptr<void> object) { kept_.push_back(std::move(object)); }

  const std::vector<Node>& nodes() const { return nodes_; }
  // Whether each of these is one of `last`, or comes before one.
  bool come_before(const Nodes& these, const Nodes& last) const;

 private:
  std::vector<Node> nodes_;
  mutable std::mutex mutex_;
  mutable VectorClock done_;
  std::vector<std::shared_ptr<void>> kept_;
};

class GraphExec {
 public:
  // The copy shares what the graph keeps, and so do its launches until they are done.
  GraphExec(Context& context, std::shared_ptr<const Graph> graph);
  ~GraphExec();
  GraphExec(const GraphExec&) = delete;
  GraphExec& operator=(const GraphExec&) = delete;

  CUresult launch(Stream& into);

 private:
  const std::shared_ptr<const Graph> graph_;
  std::vector<std::shared_ptr<Stream>> streams_;
  std::mutex mutex_;
};

// A reference of a graph to it calls this when it is dropped.
std::shared_ptr<void> user_object(void* object, CUhostFn destroy);

Handles<CUgraph, Graph>& graphs();
Handles<CUgraphExec, GraphExec>& graph_execs();
Handles<CUuserObject, std::shared_ptr<void>>& user_objects();

}  // namespace ciranda::fakes
