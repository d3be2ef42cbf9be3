// SharedRegions: memory of one's own that the other ranks of the host have mapped too, and theirs, mapped here. What
// lies in it can be combined where it is.
//
// A rank makes a region (add_own), the others map it (add_peer), and once all of them have it is used: before, find()
// does not know it. Which rank is which, and that all have mapped it, is agreed by whoever calls these.
//
// Threads: any. Ownership: the mappings, until this ends; one's own memory as long as anybody holds it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "transport/shm_segment.hpp"

namespace ciranda {

// A range of bytes in the region that its owner calls by this number.
struct RegionPlace {
  // Not in a region, but on the owner's stage (SharedArena).
  static constexpr std::uint64_t kStaged = ~std::uint64_t{0};

  std::uint64_t region;
  std::uint64_t offset;
  std::uint64_t n_bytes;
};

class SharedRegions {
 public:
  // Returns its number.
  std::uint64_t add_own(std::shared_ptr<ShmSegment> segment);
  void add_peer(int rank, std::uint64_t region, ShmSegment segment);
  // All ranks have mapped this rank's region.
  void use(std::uint64_t region);

  // Nobody here needs the region any more: it may serve again. Others keep it mapped.
  void give_back(std::uint64_t region);
  // A region of that size that was given back, and is not any more; none if there is none.
  std::optional<std::uint64_t> take_back(std::size_t n_bytes);
  std::shared_ptr<ShmSegment> own(std::uint64_t region) const;

  // Where memory of this rank lies, if it is all in one region that is used.
  std::optional<RegionPlace> find(const std::byte* data, std::size_t n_bytes) const;
  // What another rank found, as mapped here. Empty if there is no such place.
  std::span<std::byte> memory(int rank, const RegionPlace& place) const;

  // How many bytes this rank has got combined without a copy.
  std::uint64_t n_bytes_in_place() const { return n_bytes_in_place_.load(std::memory_order_relaxed); }
  void count_in_place(std::size_t n_bytes) { n_bytes_in_place_.fetch_add(n_bytes, std::memory_order_relaxed); }

 private:
  struct Own {
    std::shared_ptr<ShmSegment> segment;
    bool is_used = false;
    bool is_free = false;
  };

  mutable std::mutex mutex_;
  std::vector<Own> own_;  // by number
  std::map<std::pair<int, std::uint64_t>, ShmSegment> of_peers_;
  std::atomic<bool> has_used_{false};
  std::atomic<std::uint64_t> n_bytes_in_place_{0};
};

}  // namespace ciranda
