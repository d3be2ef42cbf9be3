#include "sums.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/half.hpp"

namespace ciranda::fakes {
namespace {

using cuda::ncclDataType_t;
using cuda::ncclRedOp_t;

struct Float16 {
  using Wide = float;
  std::uint16_t bits;
  explicit operator float() const { return kernels::float_from_float16(bits); }
  static Float16 from(float value) { return {kernels::float16_from_float(value)}; }
};

struct Bfloat16 {
  using Wide = float;
  std::uint16_t bits;
  explicit operator float() const { return kernels::float_from_bfloat16(bits); }
  static Bfloat16 from(float value) { return {kernels::bfloat16_from_float(value)}; }
};

template <typename Number>
Number combined(ncclRedOp_t op, Number a, Number b) {
  if constexpr (std::is_integral_v<Number>) {  // they wrap
    using Bits = std::uint64_t;
    if (op == ncclRedOp_t::kSum) return static_cast<Number>(static_cast<Bits>(a) + static_cast<Bits>(b));
    if (op == ncclRedOp_t::kProd) return static_cast<Number>(static_cast<Bits>(a) * static_cast<Bits>(b));
  } else {
    if (op == ncclRedOp_t::kSum) return a + b;
    if (op == ncclRedOp_t::kProd) return a * b;
  }
  return op == ncclRedOp_t::kMax ? std::max(a, b) : std::min(a, b);
}

template <typename Element>
Element one(ncclRedOp_t op, Element a, Element b) {
  if constexpr (std::is_arithmetic_v<Element>) {
    return combined(op, a, b);
  } else {
    return Element::from(combined(op, static_cast<float>(a), static_cast<float>(b)));
  }
}

template <typename Element>
void combine_all(ncclRedOp_t op, std::span<const std::byte* const> inputs, std::byte* to, std::size_t n_bytes) {
  for (std::size_t at = 0; at < n_bytes; at += sizeof(Element)) {
    Element total;
    std::memcpy(&total, inputs.front() + at, sizeof total);
    for (const std::byte* input : inputs.subspan(1)) {
      Element next;
      std::memcpy(&next, input + at, sizeof next);
      total = one(op, total, next);
    }
    std::memcpy(to + at, &total, sizeof total);
  }
}

}  // namespace

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclDataType_t::kInt8:
    case ncclDataType_t::kUint8: return 1;
    case ncclDataType_t::kFloat16:
    case ncclDataType_t::kBfloat16: return 2;
    case ncclDataType_t::kInt32:
    case ncclDataType_t::kUint32:
    case ncclDataType_t::kFloat32: return 4;
    case ncclDataType_t::kInt64:
    case ncclDataType_t::kUint64:
    case ncclDataType_t::kFloat64: return 8;
  }
  return 0;
}

void combine(ncclDataType_t type, ncclRedOp_t op, std::span<const std::byte* const> inputs, std::byte* to,
             std::size_t n_bytes) {
  const auto as = [&]<typename Element>(Element) { combine_all<Element>(op, inputs, to, n_bytes); };
  switch (type) {
    case ncclDataType_t::kInt8: return as(std::int8_t{});
    case ncclDataType_t::kUint8: return as(std::uint8_t{});
    case ncclDataType_t::kInt32: return as(std::int32_t{});
    case ncclDataType_t::kUint32: return as(std::uint32_t{});
    case ncclDataType_t::kInt64: return as(std::int64_t{});
    case ncclDataType_t::kUint64: return as(std::uint64_t{});
    case ncclDataType_t::kFloat16: return as(Float16{});
    case ncclDataType_t::kFloat32: return as(float{});
    case ncclDataType_t::kFloat64: return as(double{});
    case ncclDataType_t::kBfloat16: return as(Bfloat16{});
  }
}

}  // namespace ciranda::fakes
