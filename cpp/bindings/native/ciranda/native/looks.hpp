// looks: lets Python see values inside a compiled program during its first runs.
//
// A look is a step of the program, with a name and tensors. The step calls a function of Python with these until Python
// ends the look; from then on the step only costs a search for its name. `ciranda._frameworks.looks` is Python's side.
//
// Called by bindings/jax/, bindings/paddle/ and bindings/tensorflow/, on the thread that runs the program; by Python,
// on one of its own.
#pragma once

#include <ciranda/table.h>

#include <array>
#include <cstddef>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace ciranda::native {

// Python's function: takes the name and the tensors' addresses. Returns CIRANDA_OK, or an error with the reason in
// `message`, of at most `message_capacity` bytes including the final NUL.
using Look = ciranda_status (*)(const char* name, std::size_t count, const void* const* data, char* message,
                                std::size_t message_capacity);

// Threads: any. The thread that runs the step calls the function, which may wait for other ranks.
class Looks {
 public:
  struct Outcome {
    ciranda_status status = CIRANDA_OK;
    std::string message;
  };

  void use(Look function) {
    const std::lock_guard guard(lock_);
    look_ = function;
  }
  void end(const std::string& name) {
    const std::lock_guard guard(lock_);
    ended_.insert(name);
  }
  bool has_ended(const std::string& name) {
    const std::lock_guard guard(lock_);
    return ended_.contains(name);
  }
  // Reactivates all ended looks, as needed in another world.
  void restart() {
    const std::lock_guard guard(lock_);
    ended_.clear();
  }

  Outcome show(const std::string& name, const std::vector<const void*>& data) {
    Look function = nullptr;
    {
      const std::lock_guard guard(lock_);
      if (ended_.contains(name)) return {};
      function = look_;
    }
    if (function == nullptr) return {};
    std::array<char, kMessageBytes> message{};
    const ciranda_status status = function(name.c_str(), data.size(), data.data(), message.data(), message.size());
    return {status, message.data()};
  }

 private:
  static constexpr std::size_t kMessageBytes = 4096;

  std::mutex lock_;
  std::set<std::string> ended_;
  Look look_ = nullptr;
};

// The looks of this shared library.
inline Looks& looks() {
  static Looks all;
  return all;
}

}  // namespace ciranda::native

// Defines the functions by which Python controls the looks. Use it in one file of a library.
#define CIRANDA_DEFINE_LOOKS                                                                                    \
  extern "C" CIRANDA_API void ciranda_plugin_look_by(ciranda::native::Look look) {                              \
    ciranda::native::looks().use(look);                                                                         \
  }                                                                                                             \
  extern "C" CIRANDA_API void ciranda_plugin_end_look(const char* name) { ciranda::native::looks().end(name); } \
  extern "C" CIRANDA_API void ciranda_plugin_look_again() { ciranda::native::looks().restart(); }
