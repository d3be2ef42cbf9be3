// translate: converts the structs of ciranda.h to the engine's types. Pure; reads no environment and calls no engine.
//
// A caller's struct may be of another version. One shorter than version 1 is refused. One longer than this library's is
// accepted if all unknown bytes are zero: then it requests nothing that this library cannot do.
//
// Called by context.cc, operation.cc and other_engines.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "call/call.hpp"
#include "ciranda/ciranda.h"

namespace ciranda::capi {

// A field of a caller's struct, or zero if the struct is of an older version without that field. REQUIRES: `from`
// points to struct_size readable bytes.
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

// REQUIRES: `options`, if not null, points to struct_size readable bytes. Null gives the defaults.
Result<Options> translate(const ciranda_options* options);

// A call, and the storage of what it views beside the caller's memory.
struct TranslatedCall {
  TranslatedCall() = default;
  TranslatedCall(const TranslatedCall&) = delete;
  TranslatedCall& operator=(const TranslatedCall&) = delete;

  Call call;
  CallTensor tensor;                // the only one
  std::vector<CallTensor> tensors;  // if there are several
  std::vector<std::vector<std::int64_t>> splits;
};

// `to`: new. REQUIRES: as above, also for the tensors.
Status translate(const ciranda_request& request, TranslatedCall& to);

}  // namespace ciranda::capi
