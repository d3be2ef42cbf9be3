// Raising: throws exceptions whose message Paddle's executor propagates. They must be of Paddle's own class, whose name
// and size depend on the version. So the class is looked up in the loaded Paddle: a prebuilt library was compiled with
// the headers of the oldest version.
//
// Threads: any.
//
// Called by ops.cc.
#pragma once

#include <cxxabi.h>
#include <dlfcn.h>
#include <paddle/common/errors.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <typeinfo>

namespace ciranda::paddle_ops {

// The class EnforceNotMet of the loaded Paddle.
struct TheirException {
  using Construct = void (*)(void* self, const ::common::ErrorSummary&, const char* file, int line);
  using Destroy = void (*)(void* self);

  std::type_info* type;
  Construct construct;
  Destroy destroy;

  bool is_there() const { return type != nullptr && construct != nullptr && destroy != nullptr; }

  // Takes mangled names. The name of ErrorSummary is shorter if EnforceNotMet is in the same namespace.
  static TheirException in(const std::string& space, const std::string& summary) {
    const std::string name = "N" + space + "7enforce13EnforceNotMet";
    const auto find = [](const std::string& symbol) { return dlsym(RTLD_DEFAULT, symbol.c_str()); };
    void* const construct = find("_Z" + name + "C1ERK" + summary + "EPKci");
    return {static_cast<std::type_info*>(find("_ZTI" + name + "E")), reinterpret_cast<Construct>(construct),
            reinterpret_cast<Destroy>(find("_Z" + name + "D1Ev"))};
  }

  static const TheirException& loaded() {
    static const TheirException newer = in("6common", "NS_12ErrorSummary");
    static const TheirException older = in("3phi", "N6common12ErrorSummary");
    return newer.is_there() ? newer : older;
  }
};

// More than the size of the exception in any version. All versions begin with the same members; later ones have more.
inline constexpr std::size_t kExceptionBytes = 1024;

[[noreturn]] inline void raise_theirs(const std::string& message, const char* file, int line) {
  const TheirException& theirs = TheirException::loaded();
  if (!theirs.is_there()) throw std::runtime_error(message);
  void* exception = abi::__cxa_allocate_exception(kExceptionBytes);
  theirs.construct(exception, ::common::ErrorSummary(::common::ErrorCode::PRECONDITION_NOT_MET, message), file, line);
  abi::__cxa_throw(exception, theirs.type, theirs.destroy);
}

}  // namespace ciranda::paddle_ops
