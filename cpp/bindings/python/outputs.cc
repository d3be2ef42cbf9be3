#include "bindings/python/outputs.hpp"

#include <nanobind/ndarray.h>

#include <memory>
#include <vector>

namespace ciranda::python {

namespace nb = nanobind;

namespace {

dlpack::ElementType element_type(DataType dtype) {
  const DataTypeInfo& row = info(dtype);
  return {row.dlpack_code, static_cast<std::uint8_t>(row.n_bytes * 8), 1};
}

// A DLPack tensor that owns a share of an output buffer.
struct SharedTensor {
  dlpack::ManagedTensor managed{};
  std::shared_ptr<std::byte> data;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
};

std::unique_ptr<SharedTensor> share(const OutputBuffer& buffer, DataType dtype) {
  auto shared = std::make_unique<SharedTensor>();
  shared->data = buffer.data;
  shared->shape = buffer.shape;
  shared->strides.resize(buffer.shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = buffer.shape.size(); i-- > 0;) {
    shared->strides[i] = stride;
    stride *= buffer.shape[i];
  }
  shared->managed.version = {dlpack::kMajorVersion, 0};
  shared->managed.manager = shared.get();
  shared->managed.deleter = [](dlpack::ManagedTensor* self) {
    const std::unique_ptr<SharedTensor> owner(static_cast<SharedTensor*>(self->manager));
  };
  dlpack::Tensor& tensor = shared->managed.tensor;
  tensor.data = shared->data.get();
  tensor.device = {dlpack::kCpu, 0};
  tensor.ndim = static_cast<std::int32_t>(shared->shape.size());
  tensor.dtype = element_type(dtype);
  tensor.shape = shared->shape.data();
  tensor.strides = shared->strides.data();
  return shared;
}

nb::object wrap_by_table(const OutputBuffer& buffer, DataType dtype, const dlpack::ExchangeTable& table) {
  std::unique_ptr<SharedTensor> shared = share(buffer, dtype);
  void* object = nullptr;
  if (table.from_managed(&shared.release()->managed, &object) != 0) throw nb::python_error();
  return nb::steal(static_cast<PyObject*>(object));
}

nb::object wrap_as_numpy(const OutputBuffer& buffer, DataType dtype) {
  auto keeper = std::make_unique<std::shared_ptr<std::byte>>(buffer.data);
  const nb::capsule owner(keeper.get(), [](void* pointer) noexcept {
    const std::unique_ptr<std::shared_ptr<std::byte>> last(static_cast<std::shared_ptr<std::byte>*>(pointer));
  });
  static_cast<void>(keeper.release());
  const std::vector<std::size_t> shape(buffer.shape.begin(), buffer.shape.end());
  const auto type = element_type(dtype == DataType::kBFloat16 ? DataType::kUInt16 : dtype);
  nb::ndarray<nb::numpy> array(buffer.data.get(), shape.size(), shape.data(), owner, nullptr,
                               nb::dlpack::dtype{type.code, type.bits, type.lanes});
  return array.cast();
}

}  // namespace

nb::object wrap_output(const OutputBuffer& buffer, DataType dtype, const dlpack::ExchangeTable* table) {
  return table != nullptr ? wrap_by_table(buffer, dtype, *table) : wrap_as_numpy(buffer, dtype);
}

}  // namespace ciranda::python
