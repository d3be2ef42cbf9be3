// translate: from the structs of ciranda.h to the engine's types. Pure; reads no environment and calls no engine.
//
// A struct may be of another version than ours: a shorter one than version 1 is refused, and a longer one is accepted
// as long as what we do not know is zero, for then it asks for nothing that we cannot do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "call/call.hpp"
#include "call/request.hpp"
#include "ciranda/ciranda.h"

namespace ciranda::capi {

// Of a caller's struct, which may be of an older version: the field, or zero where it has none. REQUIRES: `from` points
// to as many readable bytes as its struct_size says.
template <typename Struct, typename Field>
Field field_of(const Struct& from, Field Struct::*field) {
  const auto* const end = reinterpret_cast<const std::byte*>(&(from.*field) + 1);
  const auto n_bytes = static_cast<std::size_t>(end - reinterpret_cast<const std::byte*>(&from));
  return from.struct_size >= n_bytes ? from.*field : Field{};
}

struct Options {
  std::vector<std::pair<std::string, std::string>> settings;
  std::uint64_t epoch = CIRANDA_EPOCH_AUTO;
};

// REQUIRES: options, if not null, points to as many readable bytes as its struct_size says. Null gives the defaults.
Result<Options> translate(const ciranda_options* options);

// The name stays empty if there is none: the engine then gives one. REQUIRES: as above, and the same of its tensors.
Result<Request> translate(const ciranda_request& request);

// The request as a Call, if it can be one. REQUIRES: as above. Views of the request.
std::optional<Call> as_call(const ciranda_request& request);

}  // namespace ciranda::capi
