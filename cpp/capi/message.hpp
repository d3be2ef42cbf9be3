// message: how functions of the C ABI that give no operation say why they failed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace ciranda::capi {

// Cut to the capacity, with a NUL at its end.
inline void copy_message(std::string_view from, char* to, std::size_t capacity) {
  if (to == nullptr || capacity == 0) return;
  const std::size_t n_bytes = std::min(from.size(), capacity - 1);
  std::memcpy(to, from.data(), n_bytes);
  to[n_bytes] = '\0';
}

}  // namespace ciranda::capi
