#include "kernels/bfloat16_wire.hpp"

#include "kernels/cpu.hpp"
#include "kernels/kernels.hpp"

namespace ciranda::kernels {
namespace {

void convert(Conversion conversion, const std::byte* from, std::byte* to, std::size_t count) {
  vector_kernel(active_simd_level())(
      {.conversion = conversion, .inputs = &from, .n_inputs = 1, .out = to, .n_bytes = count * sizeof(float)});
}

}  // namespace

void round_to_bfloat16(const std::byte* from, std::byte* to, std::size_t count) {
  convert(Conversion::kRound, from, to, count);
}

void pack_bfloat16(const std::byte* from, std::byte* to, std::size_t count) {
  convert(Conversion::kPack, from, to, count);
}

void unpack_bfloat16(const std::byte* from, std::byte* to, std::size_t count) {
  convert(Conversion::kUnpack, from, to, count);
}

}  // namespace ciranda::kernels
