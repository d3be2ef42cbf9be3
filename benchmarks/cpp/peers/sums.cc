#include "sums.hpp"

#include <array>

#include "kernels/kernels.hpp"

namespace peers {
namespace {

ciranda::DataType kernels_type(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat16: return ciranda::DataType::kFloat16;
    case DataType::kBFloat16: return ciranda::DataType::kBFloat16;
    case DataType::kFloat32: break;
  }
  return ciranda::DataType::kFloat32;
}

}  // namespace

void add(DataType dtype, const void* a, const void* b, void* out, std::size_t count) {
  ciranda::Reduction sum;
  sum.dtype = kernels_type(dtype);
  const std::array inputs{static_cast<const std::byte*>(a), static_cast<const std::byte*>(b)};
  ciranda::kernels::reduce(sum, inputs, static_cast<std::byte*>(out), count);
}

}  // namespace peers
