#include "kernels/page_watch.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

namespace ciranda::kernels::testing {
namespace {

std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

// A signal handler can be told nothing, so what it knows is global.
std::array<std::atomic<PageWatch*>, 64> watches;
struct sigaction action_before;

void on_fault(int /*signal*/, siginfo_t* info, void* /*context*/) {
  for (const auto& watch : watches) {
    if (PageWatch* const one = watch.load(); one != nullptr && one->touch(info->si_addr)) return;
  }
  sigaction(SIGSEGV, &action_before, nullptr);  // somebody else's fault: happens again, and is fatal
}

void enlist(PageWatch* watch) {
  bool is_first = true;
  for (const auto& slot : watches) is_first = is_first && slot.load() == nullptr;
  if (is_first) {
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, &action_before);
  }
  for (auto& slot : watches) {
    PageWatch* none = nullptr;
    if (slot.compare_exchange_strong(none, watch)) return;
  }
  std::abort();
}

void strike_off(PageWatch* watch) {
  bool is_last = true;
  for (auto& slot : watches) {
    if (slot.load() == watch) slot.store(nullptr);
    is_last = is_last && slot.load() == nullptr;
  }
  if (is_last) sigaction(SIGSEGV, &action_before, nullptr);
}

}  // namespace

PageWatch::PageWatch(std::size_t n_bytes) : n_bytes_((n_bytes + page_bytes() - 1) / page_bytes() * page_bytes()) {
  void* memory = mmap(nullptr, n_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  data_ = static_cast<std::byte*>(memory);
  enlist(this);
}

PageWatch::~PageWatch() {
  strike_off(this);
  munmap(data_, n_bytes_);
}

void PageWatch::start() {
  n_touched_ = 0;
  open_ = {};
  is_counting_ = true;
  mprotect(data_, n_bytes_, PROT_NONE);
}

double PageWatch::n_passes() {
  is_counting_ = false;
  mprotect(data_, n_bytes_, PROT_READ | PROT_WRITE);
  return static_cast<double>(n_touched_) / static_cast<double>(n_bytes_ / page_bytes());
}

bool PageWatch::touch(const void* address) {
  const auto* touched = static_cast<const std::byte*>(address);
  if (!is_counting_ || touched < data_ || touched >= data_ + n_bytes_) return false;
  std::byte* const page = data_ + static_cast<std::size_t>(touched - data_) / page_bytes() * page_bytes();
  if (open_[0] != nullptr) allow(open_[0], false);
  open_ = {open_[1], page};
  ++n_touched_;
  allow(page, true);
  return true;
}

void PageWatch::allow(std::byte* page, bool access) const {
  mprotect(page, page_bytes(), access ? PROT_READ | PROT_WRITE : PROT_NONE);
}

}  // namespace ciranda::kernels::testing
