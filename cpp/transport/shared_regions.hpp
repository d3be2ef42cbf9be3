// SharedRegions: memory of one's own that the other ranks of the host have mapped too, and theirs, mapped here. What
// lies in it can be combined where it is.
//
// A rank makes a region (add_own), the others map it (add_peer), and once all of them have it is used: pieces of it are
// given out (take). Before, find() does not know it. Which rank is which, and that all have mapped it, is agreed by
// whoever calls these. A region of which nothing is needed any more is dropped, unless it is kept for what comes next;
// its memory is then the system's, and the others hear that they need not keep their mapping.
//
// Others write to a rank's memory, so one that was given up and goes on later would, too: make_private().
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

#include "base/status.hpp"
#include "transport/free_ranges.hpp"
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
  static constexpr std::size_t kMostKept = 256U << 20;  // of memory that nobody needs

  // Returns its number. The segment's path is to be released when the others have it, its descriptor kept.
  std::uint64_t add_own(std::shared_ptr<ShmSegment> segment);
  void add_peer(int rank, std::uint64_t region, ShmSegment segment);
  // All ranks have mapped this rank's region.
  void use(std::uint64_t region);
  // They have not, and will not.
  void drop(std::uint64_t region);
  // What another rank has dropped.
  void forget_peer(int rank, std::uint64_t region);

  // A place for so many bytes in a region that is used; none if there is no room.
  std::optional<RegionPlace> take(std::size_t n_bytes);
  // Nobody here needs it any more.
  void give_back(const RegionPlace& place);
  // Drops what is only kept.
  void drop_kept();
  // What was dropped since the last time, as far as there is room to tell; it is told once.
  std::vector<std::uint64_t> take_dropped(std::size_t most);

  std::shared_ptr<ShmSegment> own(std::uint64_t region) const;
  std::size_t n_own_bytes() const;

  // Where memory of this rank lies, if it is all in one region that is used.
  std::optional<RegionPlace> find(const std::byte* data, std::size_t n_bytes) const;
  // What another rank found, as mapped here. Empty if there is no such place.
  std::span<std::byte> memory(int rank, const RegionPlace& place) const;

  // No rank that has mapped this rank's memory can write to it any longer. It stays where it is, with what is in it,
  // also for those who use it meanwhile; nothing is found or taken from now on. Not ok: for want of memory some of it
  // is shared as before.
  Status make_private();

  // How many bytes this rank has got combined without a copy.
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
  std::vector<std::uint64_t> dropped_;  // and not told yet
  std::map<std::pair<int, std::uint64_t>, ShmSegment> of_peers_;
  std::atomic<bool> has_used_{false};
  std::atomic<std::uint64_t> n_bytes_in_place_{0};
};

}  // namespace ciranda
