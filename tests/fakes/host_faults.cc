#include "host_faults.hpp"

#include <signal.h>

#include <cstdio>
#include <string>

#include "address_map.hpp"
#include "device_memory.hpp"
#include "report.hpp"
#include "settings.hpp"

namespace ciranda::fakes {
namespace {

struct sigaction before {};

std::string hex(const void* address) {
  char text[32];
  std::snprintf(text, sizeof text, "%p", address);
  return text;
}

// Empty: the address is none of ours. The process is about to end, so that it may allocate.
std::string explain(const void* address) {
  const auto range = address_map().try_find(address);
  const std::string host = "the host touches " + hex(address);
  if (range == nullptr) return is_device_address(address) ? host + ", which was device memory" : "";
  if (!range->is_host()) return host + ", device memory (" + range->origin + ")";
  if (range->pages == nullptr) return "";
  const UseOf holder = range->pages->holder_of(reinterpret_cast<std::uintptr_t>(address) - range->begin);
  if (holder == nullptr) return "";
  return host + ", pinned memory (" + range->origin + "), before it knows of the end of\n  " + holder->what;
}

void handle(int, siginfo_t* fault, void*) {
  if (settings()->checks) {
    if (const std::string why = explain(fault->si_addr); !why.empty()) report(why);
  }
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
