#include "bindings/mxnet/layout.hpp"

namespace ciranda::mxnet {

namespace {

bool is_of_onednn(ArrayHandle array) { return mx().IsOneDnn != nullptr && mx().IsOneDnn(memory_of(array)); }

std::string data_of(ArrayHandle array, void** data) {
  return mx().NDArrayGetData(array, data) == 0 ? "" : mx().GetLastError();
}

}  // namespace

std::string data_to_read(ArrayHandle array, Copies& copies, void** data) {
  // Other operations may read the array at the same time, so a copy is reordered.
  if (!is_of_onednn(array)) return data_of(array, data);
  copies.push_back(std::unique_ptr<OwnArray>(new OwnArray(mx().Reordered(array))));
  return data_of(copies.back()->handle(), data);
}

std::string data_to_write(ArrayHandle array, void** data) {
  if (is_of_onednn(array)) mx().Reorder(memory_of(array));
  return data_of(array, data);
}

}  // namespace ciranda::mxnet
