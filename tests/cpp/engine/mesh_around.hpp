// MeshAround: a mesh that passes everything on to another, for tests that watch or hold up some of it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transport/mesh.hpp"

namespace ciranda::testing {

class MeshAround : public Mesh {
 public:
  explicit MeshAround(std::unique_ptr<Mesh> mesh) : mesh_(std::move(mesh)) {}

  int rank() const override { return mesh_->rank(); }
  int size() const override { return mesh_->size(); }
  const PeerInfo& peer(int rank) const override { return mesh_->peer(rank); }
  Channel& control(int peer) override { return mesh_->control(peer); }
  Channel& data(int peer) override { return mesh_->data(peer); }
  SharedArena* arena() override { return mesh_->arena(); }
  void poll_events() override { mesh_->poll_events(); }
  void notify(Urgency urgency) override { mesh_->notify(urgency); }
  void arm(Sleeper sleeper) override { mesh_->arm(sleeper); }
  void disarm() override { mesh_->disarm(); }
  void sleep(std::optional<std::chrono::nanoseconds> at_most) override { mesh_->sleep(at_most); }
  void kick() override { mesh_->kick(); }
  const std::vector<int>& closed_peers() const override { return mesh_->closed_peers(); }
  std::string why_closed(int peer) const override { return mesh_->why_closed(peer); }

 private:
  std::unique_ptr<Mesh> mesh_;
};

}  // namespace ciranda::testing
