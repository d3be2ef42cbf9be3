#include "transport/shared_regions.hpp"

#include <algorithm>
#include <functional>

#include "base/round_up.hpp"

namespace ciranda {
namespace {

// Two cache lines, which the prefetcher fetches together. Pieces of a page or more begin at a page.
constexpr std::size_t kLineBytes = 128;
constexpr std::size_t kPageBytes = 4096;

// Rounds up to whole lines, at least one.
std::size_t whole_lines(std::size_t n_bytes) { return round_up(std::max<std::size_t>(n_bytes, 1), kLineBytes); }

}  // namespace

std::uint64_t SharedRegions::add_own(std::shared_ptr<ShmSegment> segment) {
  const std::lock_guard lock(mutex_);
  FreeRanges free(segment->memory().size());
  own_.emplace(n_made_, Own{std::move(segment), std::move(free)});
  return n_made_++;
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

void SharedRegions::drop(std::uint64_t region) {
  const std::lock_guard lock(mutex_);
  drop(own_.find(region));
}

// Returns the pages to the system at once, even if other ranks still map them.
SharedRegions::OwnByNumber::iterator SharedRegions::drop(OwnByNumber::iterator own) {
  own->second.segment->discard();
  dropped_.push_back(own->first);
  return own_.erase(own);
}

void SharedRegions::forget_peer(int rank, std::uint64_t region) {
  const std::lock_guard lock(mutex_);
  of_peers_.erase({rank, region});
}

std::optional<RegionRange> SharedRegions::take(std::size_t n_bytes) {
  const std::lock_guard lock(mutex_);
  const std::size_t alignment = n_bytes < kPageBytes ? kLineBytes : kPageBytes;
  for (auto& [region, own] : own_) {
    const auto offset = own.is_used ? own.free.take(whole_lines(n_bytes), alignment) : std::nullopt;
    if (offset) return RegionRange{region, *offset, n_bytes};
  }
  return std::nullopt;
}

void SharedRegions::give_back(const RegionRange& range) {
  const std::lock_guard lock(mutex_);
  const auto own = own_.find(range.region);
  own->second.free.give_back(range.offset, whole_lines(range.n_bytes));
  if (own->second.free.are_all_free() && n_kept_bytes() > kMostKept) drop(own);
}

void SharedRegions::drop_kept() {
  const std::lock_guard lock(mutex_);
  for (auto own = own_.begin(); own != own_.end();) {
    own = own->second.is_used && own->second.free.are_all_free() ? drop(own) : std::next(own);
  }
}

std::size_t SharedRegions::n_kept_bytes() const {
  std::size_t n_bytes = 0;
  for (const auto& [region, own] : own_) n_bytes += own.free.are_all_free() ? own.segment->memory().size() : 0;
  return n_bytes;
}

std::vector<std::uint64_t> SharedRegions::take_dropped(std::size_t most) {
  const std::lock_guard lock(mutex_);
  const auto end = dropped_.begin() + static_cast<std::ptrdiff_t>(std::min(most, dropped_.size()));
  std::vector<std::uint64_t> taken(dropped_.begin(), end);
  dropped_.erase(dropped_.begin(), end);
  return taken;
}

std::shared_ptr<ShmSegment> SharedRegions::own(std::uint64_t region) const {
  const std::lock_guard lock(mutex_);
  return own_.at(region).segment;
}

std::size_t SharedRegions::n_own_bytes() const {
  const std::lock_guard lock(mutex_);
  std::size_t n_bytes = 0;
  for (const auto& [region, own] : own_) n_bytes += own.segment->memory().size();
  return n_bytes;
}

std::optional<RegionRange> SharedRegions::find(const std::byte* data, std::size_t n_bytes) const {
  if (!has_used_.load(std::memory_order_relaxed)) return std::nullopt;
  const std::lock_guard lock(mutex_);
  for (const auto& [region, own] : own_) {
    const std::span<std::byte> memory = own.segment->memory();
    const bool begins_here = !std::less<>()(data, memory.data()) && std::less<>()(data, memory.data() + memory.size());
    if (!begins_here || !own.is_used) continue;
    const auto offset = static_cast<std::size_t>(data - memory.data());
    if (n_bytes > memory.size() - offset) return std::nullopt;
    return RegionRange{region, offset, n_bytes};
  }
  return std::nullopt;
}

std::span<std::byte> SharedRegions::memory(int rank, const RegionRange& range) const {
  const std::lock_guard lock(mutex_);
  const auto found = of_peers_.find({rank, range.region});
  if (found == of_peers_.end()) return {};
  const std::span<std::byte> whole = found->second.memory();
  if (range.offset > whole.size() || range.n_bytes > whole.size() - range.offset) return {};
  return whole.subspan(range.offset, range.n_bytes);
}

Status SharedRegions::make_private() {
  const std::lock_guard lock(mutex_);
  has_used_.store(false, std::memory_order_relaxed);
  for (auto& [region, own] : own_) {
    const bool is_needed = std::exchange(own.is_used, false) && !own.free.are_all_free();
    if (!is_needed) continue;
    if (Status status = own.segment->make_private(); !status.ok()) return status;
  }
  return Status::ok_status();
}

}  // namespace ciranda
