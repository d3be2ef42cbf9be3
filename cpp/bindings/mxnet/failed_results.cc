#include "bindings/mxnet/failed_results.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "bindings/mxnet/tables.hpp"

namespace ciranda::mxnet {

namespace {

// Of the same memory as the array's own (memory_of()).
std::shared_ptr<void> shared_memory_of(ArrayHandle array) { return *static_cast<const std::shared_ptr<void>*>(array); }

bool is_spoilt(ArrayHandle array) {
  int type = 0;
  void* data = nullptr;
  if (mx().NDArrayGetDType(array, &type) != 0 || mx().NDArrayGetData(array, &data) != 0) return false;
  const std::optional<std::int32_t> dtype = kDtypes.ours(type);
  if (!dtype || data == nullptr) return false;
  const std::span bytes(static_cast<const unsigned char*>(data), n_bytes_of(array, ciranda_dtype_size(*dtype)));
  const unsigned char spoilt = *dtype == CIRANDA_BOOL ? 1 : 0xFF;
  return std::all_of(bytes.begin(), bytes.end(), [&](unsigned char byte) { return byte == spoilt; });
}

}  // namespace

FailedResults& failed_results() {
  static FailedResults* const it = new FailedResults;  // never freed: calls may fail while the process ends
  return *it;
}

std::size_t n_bytes_of(ArrayHandle array, std::size_t n_bytes_of_element) {
  int ndim = 0;
  const std::int64_t* shape = nullptr;
  if (mx().NDArrayGetShapeEx64(array, &ndim, &shape) != 0) return 0;
  std::size_t n_bytes = n_bytes_of_element;
  for (int dimension = 0; dimension < ndim; ++dimension) n_bytes *= static_cast<std::size_t>(shape[dimension]);
  return n_bytes;
}

void FailedResults::add(ArrayHandle array, const std::string& message) {
  const std::lock_guard guard(lock_);
  if (failed_.size() >= most_) forget_the_gone();
  failed_[memory_of(array)] = {shared_memory_of(array), std::make_shared<const std::string>(message)};
}

std::string FailedResults::message_of(ArrayHandle array) {
  const std::lock_guard guard(lock_);
  const auto found = failed_.find(memory_of(array));
  if (found == failed_.end()) return "";
  if (found->second.memory.lock() == shared_memory_of(array) && is_spoilt(array)) return *found->second.message;
  failed_.erase(found);
  return "";
}

void FailedResults::forget_the_gone() {
  std::erase_if(failed_, [](const auto& each) { return each.second.memory.expired(); });
  most_ = std::max<std::size_t>(64, 2 * failed_.size());
}

}  // namespace ciranda::mxnet
