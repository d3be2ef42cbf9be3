// memory: ciranda_allocate() and ciranda_free().
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "ciranda/ciranda.h"

namespace ciranda::capi {
namespace {

// The owners of allocated memory, by its address: the caller keeps no more than the address.
struct Allocations {
  std::mutex mutex;
  std::unordered_map<void*, std::shared_ptr<std::byte>> owners;
};

// Never destroyed: threads may free memory while the process ends.
Allocations& allocations() {
  static Allocations& all = *std::make_unique<Allocations>().release();
  return all;
}

}  // namespace
}  // namespace ciranda::capi

extern "C" {

ciranda_status ciranda_allocate(ciranda_context* context, size_t n_bytes, void** memory, int* is_shared, char* message,
                                size_t message_capacity) noexcept {
  using ciranda::capi::copy_message;
  copy_message("", message, message_capacity);
  if (memory != nullptr) *memory = nullptr;
  if (is_shared != nullptr) *is_shared = 0;
  if (context == nullptr || memory == nullptr) {
    copy_message("ciranda_allocate: context or memory is NULL", message, message_capacity);
    return CIRANDA_INVALID_ARGUMENT;
  }
  return ciranda::capi::guarded([&] {
    auto allocated = context->engine->allocate_shared(n_bytes);
    copy_message(allocated.status().message(), message, message_capacity);
    if (!allocated.ok()) return static_cast<ciranda_status>(allocated.status().kind());
    std::shared_ptr<std::byte> owner = std::move(allocated.value().buffer.data);
    void* const address = owner.get();
    ciranda::capi::Allocations& all = ciranda::capi::allocations();
    const std::lock_guard lock(all.mutex);
    all.owners.emplace(address, std::move(owner));
    *memory = address;
    if (is_shared != nullptr) *is_shared = allocated.value().is_shared ? 1 : 0;
    return static_cast<ciranda_status>(CIRANDA_OK);
  });
}

void ciranda_free(void* memory) noexcept {
  if (memory == nullptr) return;
  ciranda::capi::guarded([&] {
    ciranda::capi::Allocations& all = ciranda::capi::allocations();
    const std::lock_guard lock(all.mutex);
    all.owners.erase(memory);
    return CIRANDA_OK;
  });
}

}  // extern "C"
