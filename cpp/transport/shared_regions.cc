#include "transport/shared_regions.hpp"

#include <functional>

namespace ciranda {

std::uint64_t SharedRegions::add_own(std::shared_ptr<ShmSegment> segment) {
  const std::lock_guard lock(mutex_);
  own_.push_back({std::move(segment)});
  return own_.size() - 1;
}

void SharedRegions::add_peer(int rank, std::uint64_t region, ShmSegment segment) {
  const std::lock_guard lock(mutex_);
  of_peers_.try_emplace({rank, region}, std::move(segment));
}

void SharedRegions::use(std::uint64_t region) {
  const std::lock_guard lock(mutex_);
  own_.at(region).is_used = true;
  has_used_.store(true, std::memory_order_relaxed);
}

void SharedRegions::give_back(std::uint64_t region) {
  const std::lock_guard lock(mutex_);
  own_.at(region).is_free = true;
}

std::optional<std::uint64_t> SharedRegions::take_back(std::size_t n_bytes) {
  const std::lock_guard lock(mutex_);
  for (std::size_t region = 0; region < own_.size(); ++region) {
    Own& own = own_[region];
    if (!own.is_used || !own.is_free || own.segment->memory().size() != n_bytes) continue;
    own.is_free = false;
    return region;
  }
  return std::nullopt;
}

std::shared_ptr<ShmSegment> SharedRegions::own(std::uint64_t region) const {
  const std::lock_guard lock(mutex_);
  return own_.at(region).segment;
}

std::optional<RegionPlace> SharedRegions::find(const std::byte* data, std::size_t n_bytes) const {
  if (!has_used_.load(std::memory_order_relaxed)) return std::nullopt;
  const std::lock_guard lock(mutex_);
  for (std::size_t region = 0; region < own_.size(); ++region) {
    const std::span<std::byte> memory = own_[region].segment->memory();
    const bool begins_here = !std::less<>()(data, memory.data()) && std::less<>()(data, memory.data() + memory.size());
    if (!begins_here || !own_[region].is_used) continue;
    const auto offset = static_cast<std::size_t>(data - memory.data());
    if (n_bytes > memory.size() - offset) return std::nullopt;
    return RegionPlace{region, offset, n_bytes};
  }
  return std::nullopt;
}

std::span<std::byte> SharedRegions::memory(int rank, const RegionPlace& place) const {
  const std::lock_guard lock(mutex_);
  const auto found = of_peers_.find({rank, place.region});
  if (found == of_peers_.end()) return {};
  const std::span<std::byte> whole = found->second.memory();
  if (place.offset > whole.size() || place.n_bytes > whole.size() - place.offset) return {};
  return whole.subspan(place.offset, place.n_bytes);
}

}  // namespace ciranda
