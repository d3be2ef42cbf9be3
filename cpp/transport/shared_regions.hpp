// SharedRegions: this rank's memory that the other ranks of the host have mapped too, and their memory, mapped here.
// Tensors in it can be combined in place.
//
// A rank creates a region (add_own), and the others map it (add_peer). Once all have mapped it, it is used (use):
// take() allocates pieces of it, and find() knows it. The callers agree on the numbers of ranks, and that all have
// mapped the region. A region whose pieces are all free is dropped, unless it is kept for later pieces. Its pages then
// go back to the system, and the other ranks are told to unmap it.
//
// Other ranks write to this rank's memory. A rank that was declared lost and resumes would do so too: make_private().
//
// Called by shared_memory.cc; through SharedArena by RegionPieces, RoundsInMemory, Engine, ProgressLoop; made by
// SharedArena, laid out by arena_layout.hpp; any thread. Ownership: the mappings, for the lifetime of this object; a
// segment of this rank's own also lives as long as others hold its shared_ptr.
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

#include "base/status.hpp"
#include "transport/free_ranges.hpp"
#include "transport/shm_segment.hpp"

namespace ciranda {

// A range of bytes in the region to which its owner has given this number.
struct RegionRange {
  // In place of a region's number: the bytes are on the owner's stage (SharedArena).
  static constexpr std::uint64_t kStaged = ~std::uint64_t{0};

  std::uint64_t region;
  std::uint64_t offset;
  std::uint64_t n_bytes;
};

class SharedRegions {
 public:
  static constexpr std::size_t kMostKept = 256U << 20;  // bytes of regions whose pieces are all free

  // Returns the region's number. When the others have opened the segment, the caller must release its name but keep its
  // descriptor.
  std::uint64_t add_own(std::shared_ptr<ShmSegment> segment);
  void add_peer(int rank, std::uint64_t region, ShmSegment segment);
  // All ranks have mapped this rank's region.
  void use(std::uint64_t region);
  // Not all ranks have mapped this rank's region, and they will not.
  void drop(std::uint64_t region);
  // The other rank has dropped this region.
  void forget_peer(int rank, std::uint64_t region);

  // Allocates n_bytes in a region for which use() was called; none if no region has room.
  std::optional<RegionRange> take(std::size_t n_bytes);
  // Frees a piece that this rank no longer needs.
  void give_back(const RegionRange& range);
  // Drops the regions that are only kept: all their pieces are free.
  void drop_kept();
  // The numbers of dropped regions, at most `most`; each is returned once.
  std::vector<std::uint64_t> take_dropped(std::size_t most);

  std::shared_ptr<ShmSegment> own(std::uint64_t region) const;
  std::size_t n_own_bytes() const;

  // The range of this rank's memory, if all of it is in one region for which use() was called.
  std::optional<RegionRange> find(const std::byte* data, std::size_t n_bytes) const;
  // The memory at a range that another rank's find() returned, as mapped here. Empty if there is no such range.
  std::span<std::byte> memory(int rank, const RegionRange& range) const;

  // Ends the access of other ranks to this rank's memory. The memory keeps its addresses and contents, also for threads
  // that use it meanwhile. From now on find() and take() return none. Not ok: memory is short, and some regions are
  // still shared.
  Status make_private();

  // The number of this rank's bytes that were combined in place.
  std::uint64_t n_bytes_in_place() const { return n_bytes_in_place_.load(std::memory_order_relaxed); }
  void count_in_place(std::size_t n_bytes) { n_bytes_in_place_.fetch_add(n_bytes, std::memory_order_relaxed); }

 private:
  struct Own {
    std::shared_ptr<ShmSegment> segment;
    FreeRanges free;
    bool is_used = false;
  };
  using OwnByNumber = std::map<std::uint64_t, Own>;

  OwnByNumber::iterator drop(OwnByNumber::iterator own);
  std::size_t n_kept_bytes() const;

  mutable std::mutex mutex_;
  OwnByNumber own_;
  std::uint64_t n_made_ = 0;
  std::vector<std::uint64_t> dropped_;  // not yet returned by take_dropped()
  std::map<std::pair<int, std::uint64_t>, ShmSegment> of_peers_;
  std::atomic<bool> has_used_{false};
  std::atomic<std::uint64_t> n_bytes_in_place_{0};
};

}  // namespace ciranda
