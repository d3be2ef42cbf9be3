#include "host_pages.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "report.hpp"

namespace ciranda::fakes {
namespace {

std::size_t page_bytes() {
  static const auto n_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return n_bytes;
}

std::size_t page_above(std::size_t at) { return (at + page_bytes() - 1) / page_bytes(); }

}  // namespace

HostPages::HostPages(std::byte* memory, std::size_t n_bytes)
    : first_page_(reinterpret_cast<std::byte*>(page_above(reinterpret_cast<std::uintptr_t>(memory)) * page_bytes())),
      n_skipped_(static_cast<std::size_t>(first_page_ - memory)),
      pages_(on_pages(n_bytes) / page_bytes()) {}

HostPages::~HostPages() {
  for (const Held& each : held_) count(each, -1);
}

void HostPages::hold(const UseOf& use, std::size_t begin, std::size_t end, bool writes) {
  const std::size_t last = std::min(on_pages(end) / page_bytes(), pages_.size());
  const std::size_t first = std::min(page_above(on_pages(begin)), last);
  if (first == last) return;
  held_.push_back({use, first, last, writes});
  count(held_.back(), 1);
}

void HostPages::release(const VectorClock& known) {
  const auto over =
      std::partition(held_.begin(), held_.end(), [&](const Held& each) { return !known.covers(each.use->moment); });
  for (auto at = over; at != held_.end(); ++at) count(*at, -1);
  held_.erase(over, held_.end());
}

UseOf HostPages::holder_of(std::size_t offset) const {
  const std::size_t page = on_pages(offset) / page_bytes();
  const auto at = std::find_if(held_.begin(), held_.end(),
                               [&](const Held& each) { return each.first <= page && page < each.last; });
  return at == held_.end() ? nullptr : at->use;
}

int HostPages::protection_of(const Page& page) {
  if (page.n_writers > 0) return PROT_NONE;
  return page.n_readers > 0 ? PROT_READ : PROT_READ | PROT_WRITE;
}

void HostPages::count(const Held& held, int change) {
  std::size_t run = held.first;  // pages from here on get `wanted`
  int wanted = -1;
  for (std::size_t at = held.first; at < held.last; ++at) {
    const int before = protection_of(pages_[at]);
    auto& counter = held.writes ? pages_[at].n_writers : pages_[at].n_readers;
    counter += static_cast<unsigned>(change);
    const int after = protection_of(pages_[at]);
    const int change_to = before == after ? -1 : after;
    if (change_to == wanted) continue;
    protect(run, at, wanted);
    run = at;
    wanted = change_to;
  }
  protect(run, held.last, wanted);
}

void HostPages::protect(std::size_t first, std::size_t last, int protection) {
  if (first == last || protection < 0) return;
  if (mprotect(first_page_ + first * page_bytes(), (last - first) * page_bytes(), protection) != 0) {
    report("mprotect of pinned memory failed");
  }
}

}  // namespace ciranda::fakes
