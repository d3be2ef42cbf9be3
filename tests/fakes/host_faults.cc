#include "host_faults.hpp"

#include <signal.h>

#include <cstdint>
#include <cstdio>

#include "address_map.hpp"
#include "device_memory.hpp"
#include "report.hpp"
#include "settings.hpp"

namespace ciranda::fakes {
namespace {

constexpr std::size_t kMost = 1024;

struct sigaction before {};

// Writes why, or "": the address is none of ours. Nothing here allocates: it runs in a signal handler.
void explain(const void* address, char* why) {
  const auto range = address_map().try_find(address);
  why[0] = '\0';
  if (range == nullptr) {
    if (is_device_address(address)) std::snprintf(why, kMost, "the host touches %p, which was device memory", address);
    return;
  }
  const char* const origin = range->origin.c_str();
  if (!range->is_host()) {
    std::snprintf(why, kMost, "the host touches %p, device memory (%s)", address, origin);
    return;
  }
  if (range->pages == nullptr) return;
  const UseOf holder = range->pages->holder_of(reinterpret_cast<std::uintptr_t>(address) - range->begin);
  if (holder == nullptr) return;
  std::snprintf(why, kMost, "the host touches %p, pinned memory (%s), before it knows of the end of\n  %s", address,
                origin, holder->what.c_str());
}

void handle(int, siginfo_t* fault, void*) {
  char why[kMost];
  explain(fault->si_addr, why);
  if (why[0] != '\0' && settings()->checks) report_from_signal(why);
  sigaction(SIGSEGV, &before, nullptr);  // and the thread comes to the same fault again
}

}  // namespace

void explain_host_faults() {
  struct sigaction action {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigaction(SIGSEGV, &action, &before);
}

}  // namespace ciranda::fakes
