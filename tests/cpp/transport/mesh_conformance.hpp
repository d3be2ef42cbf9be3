// What every Mesh must do, written against the interface (the tests are in mesh_conformance.cc). A new implementation
// says how to make n connected meshes, and instantiates the suite.
// Each rank is a thread of this process.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "transport/mesh.hpp"

namespace ciranda {

using Meshes = std::vector<std::unique_ptr<Mesh>>;

struct MeshKind {
  std::string name;
  std::function<Meshes(int n_ranks)> make;
};

// Waits as the engine's background thread does: without ever spinning. False if it takes longer than any test should.
inline bool sleep_until(Mesh& mesh, const std::function<bool()>& done) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!done()) {
    mesh.arm();
    mesh.poll_events();
    if (done()) {
      mesh.disarm();
      return true;
    }
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left.count() <= 0) {
      mesh.disarm();
      return false;
    }
    mesh.sleep(left);
    mesh.disarm();
    mesh.poll_events();
  }
  return true;
}

inline void run_ranks(Meshes& meshes, const std::function<void(Mesh&)>& body) {
  std::vector<std::thread> threads;
  for (auto& mesh : meshes) {
    threads.emplace_back([&body, &mesh] { body(*mesh); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

class MeshConformance : public ::testing::TestWithParam<std::tuple<MeshKind, int>> {
 protected:
  MeshConformance() : n_(std::get<1>(GetParam())), meshes_(std::get<0>(GetParam()).make(n_)) {}

  int n_;
  Meshes meshes_;
};
struct MeshTestName {
  template <typename Info>
  std::string operator()(const Info& info) const {
    return std::get<0>(info.param).name + "_" + std::to_string(std::get<1>(info.param));
  }
};

}  // namespace ciranda
