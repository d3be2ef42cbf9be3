// Context: the current world of this process, held during a call. The caller of a plug-in (a graph, a compiled program)
// may outlive a world: look it up at each call, and cache neither rank nor size.
#pragma once

#include <ciranda/table.h>

// Code that calls through a table has its own namespace, so that one program can contain both.
#ifdef CIRANDA_USE_TABLE
#define CIRANDA_NATIVE_VERSION by_table
#else
#define CIRANDA_NATIVE_VERSION linked
#endif

namespace ciranda::native {
inline namespace CIRANDA_NATIVE_VERSION {

inline constexpr const char* kNotInitialized = "Ciranda has not been initialized; call init() first.";

// Threads: any, one at a time. Null, and false, if the process is in no world.
class Context {
 public:
  Context() : context_(ciranda_current()) {}
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { ciranda_context_release(context_); }

  explicit operator bool() const noexcept { return context_ != nullptr; }
  ciranda_context* get() const noexcept { return context_; }

 private:
  ciranda_context* context_;
};

}  // namespace CIRANDA_NATIVE_VERSION
}  // namespace ciranda::native
