// Context: the world that this process is in at the moment, held while a call is made. What calls a plug-in, a graph
// or a compiled program, may outlive a world: look it up at each call, and keep neither rank nor size.
#pragma once

#include <ciranda/table.h>

// What calls by a table has names of its own, so that it can meet the rest in one program.
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
