// The same bits on every processor: digests of what the kernels compute, as x86-64 computed it. reduce_test.cc compares
// with a reference that runs on the same processor, and so would not see one that both depend on.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/adasum.hpp"
#include "kernels/bfloat16_wire.hpp"
#include "kernels/kernels.hpp"
#include "kernels/reference.hpp"

namespace ciranda::kernels {
namespace {

using testing::Bytes;

// FNV-1a in 64 bits: no code of the engine, whose own checksums have instructions for each processor.
class Digest {
 public:
  void add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) value_ = (value_ ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3;
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325U;
};

void add_result(const Reduction& reduction, const std::vector<Bytes>& inputs, Digest& digest) {
  std::vector<const std::byte*> pointers;
  for (const Bytes& input : inputs) pointers.push_back(input.data());
  Bytes out(inputs[0].size());
  kernels::reduce(reduction, pointers, std::span(out));
  digest.add(out);
}

// Every operator on 1 to 16 inputs, plainly, with factors, and with weights where the type has them.
std::uint64_t digest_of_reductions(DataType dtype) {
  constexpr std::size_t kCount = 259;
  Digest digest;
  for (const std::size_t n : {1U, 2U, 3U, 7U, 8U, 16U}) {
    const std::vector<Bytes> inputs = testing::make_inputs(dtype, n, kCount, 5);
    const std::vector<double> weights(n, 0.37);
    const int n_average = static_cast<int>(n);
    for (const ReduceOpInfo& row : kReduceOps) {
      if (!accepts(row.op, dtype) || !row.is_elementwise) continue;
      add_result({.dtype = dtype, .op = row.op, .n_average = n_average}, inputs, digest);
      if (!accepts_factors(row.op, dtype)) continue;
      add_result({.dtype = dtype, .op = row.op, .prescale = 1.7, .postscale = -0.3, .n_average = n_average}, inputs,
                 digest);
    }
    const TypeClass type_class = info(dtype).type_class;
    if (type_class != TypeClass::kFloating && type_class != TypeClass::kComplex) continue;
    add_result({.dtype = dtype, .op = ReduceOp::kSum, .prescale = 1.7, .weights = weights}, inputs, digest);
  }
  return digest.value();
}

struct Expected {
  DataType dtype;
  std::uint64_t digest;
};

constexpr std::array kExpected{
    Expected{DataType::kBool, 0x18732a7e0f03b808U},       Expected{DataType::kUInt8, 0xfe29ddca9da7d94aU},
    Expected{DataType::kUInt16, 0xeb9a43854ab5d3eeU},     Expected{DataType::kUInt32, 0x0f32443fc730dd68U},
    Expected{DataType::kUInt64, 0x90b4da7015857eeeU},     Expected{DataType::kInt8, 0x20dd33f4b5ff3063U},
    Expected{DataType::kInt16, 0x314c2f3d44201cb6U},      Expected{DataType::kInt32, 0xf62a7856c7260d87U},
    Expected{DataType::kInt64, 0x656feccd935fcb44U},      Expected{DataType::kFloat16, 0x641dffb60e176072U},
    Expected{DataType::kBFloat16, 0xd6298e37c8b2a6cdU},   Expected{DataType::kFloat32, 0x386ee386f87e4deeU},
    Expected{DataType::kFloat64, 0x197dbfa4ef6ebf23U},    Expected{DataType::kComplex64, 0xeb8dcf9e8b7f74adU},
    Expected{DataType::kComplex128, 0x6186bd9e808342c4U},
};
static_assert(kExpected.size() == kDataTypes.size());

TEST(SameBits, OfReductionsInEveryType) {
  for (const Expected& row : kExpected) {
    EXPECT_EQ(digest_of_reductions(row.dtype), row.digest) << to_string(row.dtype);
  }
}

// Finite numbers of many sizes, from exact operations.
template <class T>
std::vector<T> numbers(std::size_t count, std::uint32_t seed) {
  std::vector<T> result;
  for (std::size_t i = 0; i < count; ++i) {
    seed = seed * 1664525 + 1013904223;
    result.push_back(static_cast<T>(static_cast<std::int32_t>(seed)) / static_cast<T>(1U << (seed % 31)));
  }
  return result;
}

template <class T>
std::uint64_t digest_of_adasum() {
  std::vector<T> a = numbers<T>(kAdasumBlock + 1003, 1);
  const std::vector<T> b = numbers<T>(a.size(), 2);
  const Dots whole = dots(std::span<const T>(a), b);
  adasum(whole, a, b);
  Digest digest;
  digest.add(std::as_bytes(std::span(&whole, 1)));
  digest.add(std::as_bytes(std::span(a)));
  return digest.value();
}

TEST(SameBits, OfAdaptiveSums) {
  EXPECT_EQ(digest_of_adasum<float>(), 0xbb57efd65be5f8ecU);
  EXPECT_EQ(digest_of_adasum<double>(), 0x86c959038b57fe86U);
}

TEST(SameBits, OfFloatsSentInSixteenBits) {
  const Bytes floats = testing::make_inputs(DataType::kFloat32, 1, 4099, 3)[0];
  Bytes packed(floats.size() / 2);
  pack_bfloat16(floats.data(), packed.data(), packed.size() / 2);
  Digest digest;
  digest.add(packed);
  EXPECT_EQ(digest.value(), 0x0026b5de30e5b411U);
}

}  // namespace
}  // namespace ciranda::kernels
