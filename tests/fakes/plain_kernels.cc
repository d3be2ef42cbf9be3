#include "plain_kernels.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

#include "address_map.hpp"
#include "types.hpp"

namespace ciranda::fakes {
namespace {

thread_local CUresult error = CUresult::kSuccess;

struct ToFrom {
  explicit ToFrom(void** arguments)
      : to(*static_cast<std::byte**>(arguments[0])),
        from(*static_cast<std::byte**>(arguments[1])),
        n_bytes(*static_cast<std::uint64_t*>(arguments[2])) {}

  std::byte* to;
  std::byte* from;
  std::uint64_t n_bytes;
};
constexpr std::array<std::size_t, 3> kToFrom{sizeof(void*), sizeof(void*), sizeof(std::uint64_t)};

void copy(void** arguments, unsigned, unsigned) {
  const ToFrom at(arguments);
  std::memmove(address_map().in_kernel(at.to), address_map().in_kernel(at.from), at.n_bytes);
}

void copy_touches(void** arguments, std::vector<Touch>& touched) {
  const ToFrom at(arguments);
  touched.push_back({at.from, at.n_bytes, false});
  touched.push_back({at.to, at.n_bytes, true});
}

void add(void** arguments, unsigned, unsigned) {
  const ToFrom at(arguments);
  auto* const to = reinterpret_cast<unsigned char*>(address_map().in_kernel(at.to));
  const auto* const from = reinterpret_cast<unsigned char*>(address_map().in_kernel(at.from));
  for (std::uint64_t i = 0; i < at.n_bytes; ++i) to[i] = static_cast<unsigned char>(to[i] + from[i]);
}

void trap(void**, unsigned, unsigned) { error = CUresult::kIllegalAddress; }
void nothing_touched(void**, std::vector<Touch>&) {}

constexpr std::array<Twin, 3> kKernels{{
    {"plain_copy", copy, copy_touches, kToFrom},
    {"plain_add", add, copy_touches, kToFrom},
    {"plain_trap", trap, nothing_touched, {}},
}};

}  // namespace

const Twin* find_plain_kernel(std::string_view name) {
  for (const Twin& each : kKernels) {
    if (each.name == name) return &each;
  }
  return nullptr;
}

int take_kernel_error() { return static_cast<int>(std::exchange(error, CUresult::kSuccess)); }

}  // namespace ciranda::fakes
