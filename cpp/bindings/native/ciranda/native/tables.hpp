// tables: a framework's numbers for the engine's element types and status codes.
//
//   constexpr native::DtypeTable<TF_DataType> kDtypes({{CIRANDA_BOOL, TF_BOOL}, {CIRANDA_UINT8, TF_UINT8}, ...});
//   constexpr native::StatusTable<TF_Code> kCodes({{CIRANDA_OK, TF_OK}, ...});
//
// A table has one row for each of the engine's numbers, in their order, with std::nullopt if the framework has no
// counterpart. A table that is too short, too long or out of order does not compile, so additions to the engine's enums
// are not forgotten here.
//
// Called by bindings/jax/collective_call.cc, bindings/mxnet/, bindings/tensorflow/ and bindings/paddle/; pure.
#pragma once

#include <ciranda/table.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace ciranda::native {

template <typename Theirs>
struct Row {
  std::int32_t ours;
  std::optional<Theirs> theirs;
};

template <typename Theirs, std::size_t kRows>
class Table {
 public:
  template <std::size_t kGiven>
  consteval explicit Table(const Row<Theirs> (&rows)[kGiven]) {
    static_assert(kGiven == kRows, "a table has one row for each of the engine's numbers");
    for (std::size_t i = 0; i < kRows; ++i) {
      if (rows[i].ours != static_cast<std::int32_t>(i)) throw "rows stand in the order of the engine's numbers";
      theirs_[i] = rows[i].theirs;
    }
  }

  // The framework's counterpart of `ours`; std::nullopt if there is none, or `ours` is out of range.
  constexpr std::optional<Theirs> theirs(std::int32_t ours) const {
    if (ours < 0 || static_cast<std::size_t>(ours) >= kRows) return std::nullopt;
    return theirs_[static_cast<std::size_t>(ours)];
  }

  // The number of the first row with `theirs`.
  constexpr std::optional<std::int32_t> ours(const Theirs& theirs) const {
    for (std::size_t i = 0; i < kRows; ++i) {
      if (theirs_[i] == theirs) return static_cast<std::int32_t>(i);
    }
    return std::nullopt;
  }

 private:
  std::array<std::optional<Theirs>, kRows> theirs_{};
};

template <typename Theirs>
using DtypeTable = Table<Theirs, CIRANDA_COMPLEX128 + 1>;

// Has the status codes of completed operations, so not CIRANDA_PENDING.
template <typename Theirs>
using StatusTable = Table<Theirs, CIRANDA_INTERNAL + 1>;

}  // namespace ciranda::native
