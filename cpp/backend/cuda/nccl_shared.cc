#include "backend/cuda/nccl_shared.hpp"

#include <map>
#include <mutex>
#include <utility>

namespace ciranda::cuda {
namespace {

struct Known {
  std::mutex mutex;
  std::map<NcclShared::Key, std::weak_ptr<NcclShared>> all;
};

Known& known() {
  static Known& known = *new Known;
  return known;
}

}  // namespace

// All lanes of a world see the same object for a rank.
NcclShared::Key NcclShared::key_of(const Mesh& mesh, const Gpu& gpu) {
  std::vector<int> ranks(static_cast<std::size_t>(mesh.size()));
  for (std::size_t member = 0; member < ranks.size(); ++member) {
    ranks[member] = mesh.peer(static_cast<int>(member)).rank;
  }
  return {&mesh.peer(mesh.rank()), &gpu, std::move(ranks)};
}

NcclShared::~NcclShared() {
  if (is_left_alone_.load()) return;
  if (communicator != nullptr) communicator->end();
  room->give_back();
}

std::shared_ptr<NcclShared> NcclShared::find(const Key& key) {
  const std::lock_guard lock(known().mutex);
  const auto found = known().all.find(key);
  std::shared_ptr<NcclShared> shared = found == known().all.end() ? nullptr : found->second.lock();
  const bool is_usable = shared != nullptr && !shared->is_left_alone_.load() && shared->communicator->status().ok();
  return is_usable ? shared : nullptr;
}

void NcclShared::keep(const Key& key, const std::shared_ptr<NcclShared>& made) {
  const std::lock_guard lock(known().mutex);
  std::erase_if(known().all, [](const auto& each) { return each.second.expired(); });
  known().all[key] = made;
}

}  // namespace ciranda::cuda
