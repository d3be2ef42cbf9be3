#include "bindings/mxnet/lent.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "bindings/mxnet/tables.hpp"

namespace ciranda::mxnet {

namespace {

class GivenBack {
 public:
  void add(void* owner) {
    const std::lock_guard guard(lock_);
    owners_.push_back(owner);
  }

  std::size_t fetch(std::span<void*> owners) {
    const std::lock_guard guard(lock_);
    const std::size_t n = std::min(owners.size(), owners_.size());
    std::copy(owners_.end() - static_cast<std::ptrdiff_t>(n), owners_.end(), owners.begin());
    owners_.resize(owners_.size() - n);
    return n;
  }

 private:
  std::mutex lock_;
  std::vector<void*> owners_;
};

GivenBack& given_back() {
  static GivenBack* const it = new GivenBack;  // never freed: arrays may be deleted while the process ends
  return *it;
}

// The object that MXNet keeps for the memory.
struct Lent {
  DlManagedTensor tensor{};
  std::vector<std::int64_t> shape;

  static void give_back(DlManagedTensor* tensor) {
    const std::unique_ptr<Lent> its(static_cast<Lent*>(tensor->manager));
    given_back().add(its->owner);
  }

  void* owner = nullptr;
};

}  // namespace

Array lend(void* data, std::span<const std::int64_t> shape, ciranda_dtype dtype, void* owner) {
  const std::optional<DlType> type = kDlTypes.theirs(dtype);
  if (!type) return nullptr;
  auto lent = std::make_unique<Lent>();
  lent->shape.assign(shape.begin(), shape.end());
  lent->owner = owner;
  DlManagedTensor& tensor = lent->tensor;
  tensor.data = data;
  tensor.device = kCpu;
  tensor.ndim = static_cast<std::int32_t>(shape.size());
  tensor.type = *type;
  tensor.shape = lent->shape.data();
  tensor.manager = lent.get();
  tensor.give_back = &Lent::give_back;
  ArrayHandle array = nullptr;
  if (mx().NDArrayFromDLPackEx(&tensor, false, &array) != 0) return nullptr;
  (void)lent.release();  // give_back() deletes it
  return Array(array);
}

std::size_t fetch_given_back(std::span<void*> owners) { return given_back().fetch(owners); }

}  // namespace ciranda::mxnet
