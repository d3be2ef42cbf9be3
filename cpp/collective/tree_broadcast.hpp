// Broadcast along a tree (broadcast_tree.hpp): each rank passes on what it gets while more of it comes, so the root
// sends no more than a few ranks need from it.
#pragma once

#include <memory>

#include "collective/broadcast_tree.hpp"
#include "collective/running_collective.hpp"
#include "fuse/plan.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

// segment_bytes: what is passed on at a time.
std::unique_ptr<RunningCollective> tree_broadcast(Mesh& mesh, const Plan& plan, const TreePlace& place,
                                                  std::size_t segment_bytes);

}  // namespace ciranda
