#include "graph.hpp"

#include <algorithm>
#include <utility>

#include "checker.hpp"

namespace ciranda::fakes {

Graph::~Graph() { checker().publish(done_); }

void Graph::note_done(const VectorClock& clock) const {
  const std::lock_guard lock(mutex_);
  done_.join(clock);
}

bool Graph::come_before(const Nodes& these, const Nodes& last) const {
  std::vector<bool> found(nodes_.size());
  Nodes to_visit = last;
  while (!to_visit.empty()) {
    const std::size_t node = to_visit.back();
    to_visit.pop_back();
    if (found[node]) continue;
    found[node] = true;
    to_visit.insert(to_visit.end(), nodes_[node].after.begin(), nodes_[node].after.end());
  }
  return std::ranges::all_of(these, [&found](std::size_t node) { return found[node]; });
}

GraphExec::GraphExec(Context& context, std::shared_ptr<const Graph> graph) : graph_(std::move(graph)) {
  std::size_t n_streams = 0;
  for (const Graph::Node& each : graph_->nodes()) n_streams = std::max(n_streams, each.stream + 1);
  while (streams_.size() < n_streams) streams_.push_back(context.make_stream(Stream::Type::kNonBlocking));
}

GraphExec::~GraphExec() {
  for (const auto& each : streams_) each->close();
}

CUresult GraphExec::launch(Stream& into) {
  const std::lock_guard lock(mutex_);
  Point begin;
  if (const CUresult begun = into.enqueue({.call = "cuGraphLaunch"}, &begin); begun != CUresult::kSuccess) return begun;
  std::vector<Point> reached(graph_->nodes().size());
  for (std::size_t number = 0; number < reached.size(); ++number) {
    const auto& [launch, stream, after] = graph_->nodes()[number];
    Launch again = launch;
    again.waits.push_back(begin);
    for (const std::size_t each : after) again.waits.push_back(reached[each]);
    const CUresult given = streams_[stream]->enqueue(std::move(again), &reached[number]);
    if (given != CUresult::kSuccess) return given;
  }
  const auto end = [kept = graph_](const VectorClock& clock) {
    kept->note_done(clock);
    return CUresult::kSuccess;
  };
  return into.enqueue({.call = "cuGraphLaunch", .waits = std::move(reached), .run = end});
}

std::shared_ptr<void> user_object(void* object, CUhostFn destroy) { return {object, destroy}; }

Handles<CUgraph, Graph>& graphs() {
  static auto* const kept = new Handles<CUgraph, Graph>;
  return *kept;
}

Handles<CUgraphExec, GraphExec>& graph_execs() {
  static auto* const kept = new Handles<CUgraphExec, GraphExec>;
  return *kept;
}

Handles<CUuserObject, std::shared_ptr<void>>& user_objects() {
  static auto* const kept = new Handles<CUuserObject, std::shared_ptr<void>>;
  return *kept;
}

}  // namespace ciranda::fakes
