#include "call/output_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

namespace ciranda {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kHugePage = 2U << 20;
// Above this size operator new would round up to 0, and succeed.
constexpr std::size_t kMostBytes = SIZE_MAX / 2;

struct Block {
  std::byte* data = nullptr;
  std::size_t n_bytes = 0;
};

std::size_t alignment_for(std::size_t n_bytes) { return n_bytes < kHugePage ? kLine : kHugePage; }

// Advises the system on the whole huge pages of a block; it may ignore the advice.
void advise_huge_pages(const Block& block, int advice) {
  const std::size_t n_whole = block.n_bytes / kHugePage * kHugePage;
  if (n_whole > 0) madvise(block.data, n_whole, advice);
}

// None if memory is exhausted.
std::optional<Block> make(std::size_t n_bytes) {
  if (n_bytes > kMostBytes) return std::nullopt;
  const std::size_t rounded = (n_bytes + kLine) / kLine * kLine;
  auto* data =
      static_cast<std::byte*>(::operator new (rounded, std::align_val_t{alignment_for(rounded)}, std::nothrow));
  if (data == nullptr) return std::nullopt;
  const Block block{data, rounded};
  advise_huge_pages(block, MADV_HUGEPAGE);
  return block;
}

void free(const Block& block) { ::operator delete (block.data, std::align_val_t{alignment_for(block.n_bytes)}); }

}  // namespace

class OutputMemory::Kept {
 public:
  Kept() = default;
  ~Kept() {
    for (const Aging& aging : blocks_) free(aging.block);
  }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

  // Takes the most recently kept block that is not much too large.
  std::optional<Block> take(std::size_t n_bytes) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return std::nullopt;
    ++n_takes_;
    drop_old();
    const auto fits = [n_bytes](const Aging& aging) {
      return aging.block.n_bytes >= n_bytes && aging.block.n_bytes - n_bytes <= n_bytes / 4;
    };
    const auto found = std::find_if(blocks_.rbegin(), blocks_.rend(), fits);
    if (found == blocks_.rend()) return std::nullopt;
    const Block block = found->block;
    n_bytes_ -= block.n_bytes;
    blocks_.erase(std::next(found).base());
    return block;
  }

  void put(const Block& block) {
    advise_huge_pages(block, MADV_FREE);
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock || block.n_bytes > kMostKept) return free(block);
    blocks_.push_back({block, n_takes_});
    n_bytes_ += block.n_bytes;
    while (n_bytes_ > kMostKept) drop_first();
  }

  std::size_t n_bytes() const { return n_bytes_.load(std::memory_order_relaxed); }

 private:
  struct Aging {
    Block block;
    std::uint64_t since;  // n_takes_ when it was kept
  };

  void drop_first() {
    n_bytes_ -= blocks_.front().block.n_bytes;
    free(blocks_.front().block);
    blocks_.erase(blocks_.begin());
  }
  void drop_old() {
    while (!blocks_.empty() && n_takes_ - blocks_.front().since > kTakesUntilOld) drop_first();
  }

  std::mutex mutex_;
  std::vector<Aging> blocks_;             // in the order in which they were kept
  std::atomic<std::size_t> n_bytes_ = 0;  // written under the lock
  std::uint64_t n_takes_ = 0;
};

OutputMemory::OutputMemory() : kept_(std::make_shared<Kept>()) {}

OutputBuffer OutputMemory::allocate(std::size_t n_bytes, std::vector<std::int64_t> shape) const {
  if (n_bytes < kLeastKept) return allocate_output(n_bytes, std::move(shape));
  std::optional<Block> block = kept_->take(n_bytes);
  if (!block) block = make(n_bytes);
  if (!block) return {};
  const auto give_back = [weak = std::weak_ptr(kept_), block = *block](std::byte*) {
    if (const auto kept = weak.lock()) {
      kept->put(block);
    } else {
      free(block);
    }
  };
  return {std::shared_ptr<std::byte>(block->data, give_back), n_bytes, std::move(shape)};
}

std::size_t OutputMemory::n_kept_bytes() const { return kept_->n_bytes(); }

OutputBuffer allocate_output(std::size_t n_bytes, std::vector<std::int64_t> shape) {
  const std::optional<Block> block = make(n_bytes);
  if (!block) return {};
  return {std::shared_ptr<std::byte>(block->data, [block = *block](std::byte*) { free(block); }), n_bytes,
          std::move(shape)};
}

}  // namespace ciranda
