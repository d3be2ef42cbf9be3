// Device: a tensor's device, as a collective needs it. The operators know only this interface, so that another kind of
// device is one more class.
//
// Threads: any. Failure: an exception of Paddle's, which names the device.
#pragma once

namespace paddle {
class Tensor;
}  // namespace paddle

namespace ciranda::paddle_ops {

class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  // Blocks until the tensor's memory has the results of the device's earlier operations.
  virtual void ready(const ::paddle::Tensor& tensor) const = 0;
  // The tensor's address, for the engine to read and write. REQUIRES: it is contiguous.
  virtual void* address(const ::paddle::Tensor& tensor) const = 0;
  // The engine has written to the tensor: the device's later operations must see it.
  virtual void done(const ::paddle::Tensor& tensor) const = 0;
};

// The device of a tensor. Never destroyed.
const Device& device_of(const ::paddle::Tensor& tensor);

}  // namespace ciranda::paddle_ops
