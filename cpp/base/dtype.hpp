// THE table of element types. The wire enum, validation, the C and Python enums, the documentation and the list of
// conformance tests are derived from it; a new type is one row here and one row in kernels/.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ciranda {

enum class DataType : std::uint8_t {
  kBool = 0,
  kUInt8 = 1,
  kUInt16 = 2,
  kUInt32 = 3,
  kUInt64 = 4,
  kInt8 = 5,
  kInt16 = 6,
  kInt32 = 7,
  kInt64 = 8,
  kFloat16 = 9,
  kBFloat16 = 10,
  kFloat32 = 11,
  kFloat64 = 12,
  kComplex64 = 13,
  kComplex128 = 14,
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
static_assert(
    [] {
      for (std::size_t i = 0; i < kNumDataTypes; ++i) {
        if (static_cast<std::size_t>(kDataTypes[i].dtype) != i) return false;
      }
      return true;
    }(),
    "rows stand in the order of their wire value");

// REQUIRES: dtype is a member of the enum (values from the wire go through data_type_from_wire first).
constexpr const DataTypeInfo& info(DataType dtype) { return kDataTypes[static_cast<std::size_t>(dtype)]; }
constexpr std::size_t size_of(DataType dtype) { return info(dtype).n_bytes; }
constexpr std::string_view to_string(DataType dtype) { return info(dtype).name; }

constexpr std::optional<DataType> data_type_from_wire(std::uint8_t value) {
  if (value >= kNumDataTypes) return std::nullopt;
  return static_cast<DataType>(value);
}

}  // namespace ciranda
