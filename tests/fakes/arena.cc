#include "arena.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/round_up.hpp"
#include "report.hpp"

namespace ciranda::fakes {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kMostRubbish = std::size_t{1} << 20;
constexpr int kFresh = 0xA5;
constexpr int kReleased = 0xEE;

std::byte* map(int descriptor, int protection) {
  void* at = mmap(nullptr, Arena::kBytes, protection, MAP_SHARED | MAP_NORESERVE, descriptor, 0);
  if (at == MAP_FAILED) report("cannot map an arena");
  return static_cast<std::byte*>(at);
}

UniqueFd make_pages(const std::string& name) {
  UniqueFd pages(memfd_create(name.c_str(), MFD_CLOEXEC));
  if (!pages.valid() || ftruncate(pages.get(), static_cast<off_t>(Arena::kBytes)) != 0) report("cannot make an arena");
  return pages;
}

}  // namespace

Arena::Arena(const std::string& name, int host_protection)
    : pages_(make_pages(name)),
      memory_(map(pages_.get(), host_protection)),
      visible_(map(pages_.get(), PROT_READ | PROT_WRITE)) {}

std::byte* Arena::allocate(std::size_t n_bytes, std::size_t most_bytes) {
  const std::size_t size = round_up(n_bytes, kPage);
  std::size_t begin = 0;
  {
    const std::lock_guard lock(mutex_);
    if (size < n_bytes || size > most_bytes || n_used_ > most_bytes - size) return nullptr;
    begin = find_gap(size);
    if (begin == kBytes) return nullptr;
    used_.emplace(begin, size);
    n_used_ += size;
    next_ = begin + size;
  }
  std::memset(visible_ + begin, kFresh, std::min(size, kMostRubbish));
  return memory_ + begin;
}

// From where the last one ended, then from the beginning. Returns kBytes if there is none.
std::size_t Arena::find_gap(std::size_t n_bytes) const {
  for (const std::size_t from : {next_, std::size_t{0}}) {
    std::size_t begin = from;
    for (auto at = used_.lower_bound(from); at != used_.end() && at->first - begin < n_bytes; ++at) {
      begin = at->first + at->second;
    }
    const auto after = used_.lower_bound(begin);
    const std::size_t end = after == used_.end() ? kBytes : after->first;
    if (end - begin >= n_bytes) return begin;
  }
  return kBytes;
}

void Arena::release(std::byte* memory) {
  const std::size_t begin = offset_of(memory);
  const std::lock_guard lock(mutex_);
  const auto at = used_.find(begin);
  if (at == used_.end()) report("an arena has no such memory");
  const std::size_t size = at->second;
  const std::size_t n_rubbish = std::min(size, kMostRubbish);
  std::memset(visible_ + begin, kReleased, n_rubbish);
  if (size > n_rubbish) {
    fallocate(pages_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin + n_rubbish),
              static_cast<off_t>(size - n_rubbish));
  }
  used_.erase(at);
  n_used_ -= size;
}

bool Arena::has(const void* address) const {
  const auto* at = static_cast<const std::byte*>(address);
  return memory_ <= at && at < memory_ + kBytes;
}

}  // namespace ciranda::fakes
