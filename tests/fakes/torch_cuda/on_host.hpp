// OnHost: a kernel that torch's operators for the CPU run. It touches the elements of tensors of a device, which the
// calling thread has as tensors of the CPU over the same memory until the kernel ends.
//
// Threads: one.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "driver.hpp"

namespace ciranda::fakes::torch_cuda {

class OnHost {
 public:
  // On the current stream of `device`.
  OnHost(std::string name, c10::Device device);
  OnHost(const OnHost&) = delete;
  OnHost& operator=(const OnHost&) = delete;
  ~OnHost();

  // Before begin().
  void touch(const at::Tensor& tensor, bool writes);

  void begin();
  // REQUIRES: that the kernel runs, and `tensor` is touched.
  at::Tensor on_host(const at::Tensor& tensor);
  // Tensors of on_host() must not be used from now on.
  void end();

  // The storage of the device whose memory a tensor of the host has; null: it has memory of its own.
  const c10::Storage* storage_of(const at::Tensor& on_host) const;

 private:
  struct Shared {
    c10::Storage device;
    c10::Storage host;
  };

  const std::string name_;
  const c10::Device device_;
  std::vector<CallerTouch> touches_;
  std::map<const c10::StorageImpl*, Shared> shared_;  // by the device's
  void* kernel_ = nullptr;
};

// A tensor over memory of `storage`, which is on the device, with the shape of `like`.
at::Tensor over(const c10::Storage& storage, const at::Tensor& like);

// A copy of a tensor of the CPU, written on the current stream of `device`.
at::Tensor to_device(const at::Tensor& tensor, c10::Device device);

}  // namespace ciranda::fakes::torch_cuda
