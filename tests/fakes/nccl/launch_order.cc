#include "launch_order.hpp"

#include <algorithm>

namespace ciranda::fakes {

bool LaunchOrder::add(const cuda::CUuuid& gpu, const std::vector<Meeting>& meetings) {
  const std::lock_guard lock(mutex_);
  std::vector<Meeting>& last = last_[std::string(gpu.bytes.begin(), gpu.bytes.end())];
  for (const Meeting& meeting : meetings) {
    Node& node = nodes_.try_emplace(meeting.name, Node{meeting.n_ranks}).first->second;
    --node.n_to_come;
    for (const Meeting& earlier : last) {
      if (!nodes_.contains(earlier.name)) continue;
      if (reaches(earlier.name, meeting.name)) return false;
      node.before.insert(earlier.name);
    }
  }
  last = meetings;
  forget();
  return true;
}

// Whether `from` waits for `to`.
bool LaunchOrder::reaches(const std::string& from, const std::string& to) const {
  if (from == to) return true;
  const auto found = nodes_.find(from);
  return found != nodes_.end() &&
         std::ranges::any_of(found->second.before, [&](const std::string& each) { return reaches(each, to); });
}

// What has come everywhere and waits for nothing is in no circle.
void LaunchOrder::forget() {
  while (true) {
    const auto done = std::ranges::find_if(
        nodes_, [](const auto& each) { return each.second.n_to_come <= 0 && each.second.before.empty(); });
    if (done == nodes_.end()) return;
    for (auto& [name, node] : nodes_) node.before.erase(done->first);
    nodes_.erase(done);
  }
}

}  // namespace ciranda::fakes
