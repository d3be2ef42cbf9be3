#include "address_map.hpp"

#include <iterator>
#include <mutex>
#include <utility>

namespace ciranda::fakes {
namespace {

std::uintptr_t to_number(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

}  // namespace

std::shared_ptr<Range> AddressMap::add(Range range) {
  auto added = std::make_shared<Range>(std::move(range));
  const std::unique_lock lock(mutex_);
  added->id = ++n_ranges_;
  auto at = gone_.lower_bound(added->begin);
  if (at != gone_.begin() && std::prev(at)->second.end > added->begin) --at;
  while (at != gone_.end() && at->first < added->end()) at = gone_.erase(at);
  ranges_.emplace(added->begin, added);
  return added;
}

void AddressMap::end(Range& range, std::string how) {
  const std::unique_lock lock(mutex_);
  range.has_ended = true;
  gone_.insert_or_assign(range.begin, Gone{range.end(), std::move(how)});
}

void AddressMap::remove(const Range& range) {
  const std::unique_lock lock(mutex_);
  ranges_.erase(range.begin);
}

std::shared_ptr<Range> AddressMap::find(const void* address) const {
  const std::shared_lock lock(mutex_);
  return find_live(address);
}

std::shared_ptr<Range> AddressMap::try_find(const void* address) const {
  const std::shared_lock lock(mutex_, std::try_to_lock);
  return lock.owns_lock() ? find_live(address) : nullptr;
}

std::shared_ptr<Range> AddressMap::find_live(const void* address) const {
  auto range = find_any(to_number(address));
  return range == nullptr || range->has_ended ? nullptr : range;
}

std::shared_ptr<Range> AddressMap::find_any(std::uintptr_t address) const {
  auto at = ranges_.upper_bound(address);
  if (at == ranges_.begin()) return nullptr;
  --at;
  return address < at->second->end() ? at->second : nullptr;
}

std::optional<std::string> AddressMap::end_of(const void* address) const {
  const std::shared_lock lock(mutex_);
  auto at = gone_.upper_bound(to_number(address));
  if (at == gone_.begin()) return std::nullopt;
  --at;
  if (to_number(address) >= at->second.end) return std::nullopt;
  return at->second.how;
}

std::byte* AddressMap::in_kernel(const void* address) const {
  const std::shared_lock lock(mutex_);
  const auto range = find_any(to_number(address));
  if (range == nullptr) return static_cast<std::byte*>(const_cast<void*>(address));
  return range->visible + (to_number(address) - range->begin);
}

AddressMap& address_map() {
  static auto* const kept = new AddressMap;  // outlives the threads of the streams
  return *kept;
}

}  // namespace ciranda::fakes
