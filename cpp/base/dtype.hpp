// THE table of element types, whose values are those of the C ABI. Validation, the Python enum, the documentation and
// the list of conformance tests are derived from it; a new type is a constant in ciranda.h, a row here and one in
// kernels/.
// Used by all layers; pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "ciranda/ciranda.h"

namespace ciranda {

enum class DataType : std::uint8_t {
  kBool = CIRANDA_BOOL,
  kUInt8 = CIRANDA_UINT8,
  kUInt16 = CIRANDA_UINT16,
  kUInt32 = CIRANDA_UINT32,
  kUInt64 = CIRANDA_UINT64,
  kInt8 = CIRANDA_INT8,
  kInt16 = CIRANDA_INT16,
  kInt32 = CIRANDA_INT32,
  kInt64 = CIRANDA_INT64,
  kFloat16 = CIRANDA_FLOAT16,
  kBFloat16 = CIRANDA_BFLOAT16,
  kFloat32 = CIRANDA_FLOAT32,
  kFloat64 = CIRANDA_FLOAT64,
  kComplex64 = CIRANDA_COMPLEX64,
  kComplex128 = CIRANDA_COMPLEX128,
};
inline constexpr std::size_t kNumDataTypes = 15;

enum class TypeClass : std::uint8_t { kBoolean, kUnsigned, kSigned, kFloating, kComplex };

struct DataTypeInfo {
  DataType dtype;
  std::string_view name;  // NumPy's name, and "bfloat16"
  std::size_t n_bytes;
  TypeClass type_class;
  std::uint8_t dlpack_code;  // DLDataTypeCode: 0 int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool
};

// True if the index of each row equals the row's value.
template <typename Row, std::size_t kRows, typename Value>
consteval bool rows_are_in_order(const std::array<Row, kRows>& table, Value Row::*value) {
  for (std::size_t i = 0; i < kRows; ++i) {
    if (static_cast<std::size_t>(table[i].*value) != i) return false;
  }
  return true;
}

inline constexpr std::array kDataTypes{
    DataTypeInfo{DataType::kBool, "bool", 1, TypeClass::kBoolean, 6},
    DataTypeInfo{DataType::kUInt8, "uint8", 1, TypeClass::kUnsigned, 1},
    DataTypeInfo{DataType::kUInt16, "uint16", 2, TypeClass::kUnsigned, 1},
    DataTypeInfo{DataType::kUInt32, "uint32", 4, TypeClass::kUnsigned, 1},
    DataTypeInfo{DataType::kUInt64, "uint64", 8, TypeClass::kUnsigned, 1},
    DataTypeInfo{DataType::kInt8, "int8", 1, TypeClass::kSigned, 0},
    DataTypeInfo{DataType::kInt16, "int16", 2, TypeClass::kSigned, 0},
    DataTypeInfo{DataType::kInt32, "int32", 4, TypeClass::kSigned, 0},
    DataTypeInfo{DataType::kInt64, "int64", 8, TypeClass::kSigned, 0},
    DataTypeInfo{DataType::kFloat16, "float16", 2, TypeClass::kFloating, 2},
    DataTypeInfo{DataType::kBFloat16, "bfloat16", 2, TypeClass::kFloating, 4},
    DataTypeInfo{DataType::kFloat32, "float32", 4, TypeClass::kFloating, 2},
    DataTypeInfo{DataType::kFloat64, "float64", 8, TypeClass::kFloating, 2},
    DataTypeInfo{DataType::kComplex64, "complex64", 8, TypeClass::kComplex, 5},
    DataTypeInfo{DataType::kComplex128, "complex128", 16, TypeClass::kComplex, 5},
};
static_assert(kDataTypes.size() == kNumDataTypes);
static_assert(rows_are_in_order(kDataTypes, &DataTypeInfo::dtype), "rows stand in the order of their wire value");

// REQUIRES: dtype is a member of the enum (values from the wire go through data_type_from_wire first).
constexpr const DataTypeInfo& info(DataType dtype) { return kDataTypes[static_cast<std::size_t>(dtype)]; }
constexpr std::size_t size_of(DataType dtype) { return info(dtype).n_bytes; }
constexpr std::string_view to_string(DataType dtype) { return info(dtype).name; }

constexpr std::optional<DataType> data_type_from_wire(std::uint8_t value) {
  if (value >= kNumDataTypes) return std::nullopt;
  return static_cast<DataType>(value);
}

}  // namespace ciranda
