// What the Python part calls.
#include "allocator.hpp"
#include "current.hpp"
#include "storage.hpp"

#pragma GCC visibility push(default)
extern "C" {
namespace ciranda::fakes::torch_cuda {

int fake_torch_n_devices() { return n_devices(); }
int fake_torch_device() { return current_device(); }
void fake_torch_set_device(int device) { set_current_device(device); }
std::uintptr_t fake_torch_stream(int device) { return reinterpret_cast<std::uintptr_t>(current_stream(device)); }
void fake_torch_set_stream(int device, std::uintptr_t stream) {
  set_current_stream(device, reinterpret_cast<CUstream>(stream));
}
void fake_torch_synchronize(int device) { synchronize_device(device); }
void fake_torch_empty_cache() { empty_cache(); }
std::size_t fake_torch_n_allocated_bytes(int device) { return n_allocated_bytes(device); }

// `storage`: UntypedStorage._cdata.
void fake_torch_resize_storage(std::uintptr_t storage, std::size_t n_bytes) {
  resize_storage(*reinterpret_cast<c10::StorageImpl*>(storage), n_bytes);
}

}  // namespace ciranda::fakes::torch_cuda
}
#pragma GCC visibility pop
