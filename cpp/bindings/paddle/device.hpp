// Device: what a collective needs of the device on which a tensor lies. The operators know no more of devices than
// this, so that another kind is one more class here, and no change of theirs.
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

  // Returns once what was asked of the device before is in the tensor's memory.
  virtual void ready(const ::paddle::Tensor& tensor) const = 0;
  // Where the tensor lies, for the engine to read from and write to. REQUIRES: it is contiguous.
  virtual void* address(const ::paddle::Tensor& tensor) const = 0;
  // The engine has written to the tensor: what is asked of the device from now on sees it.
  virtual void done(const ::paddle::Tensor& tensor) const = 0;
};

// The device of a tensor. Lives for ever.
const Device& device_of(const ::paddle::Tensor& tensor);

}  // namespace ciranda::paddle_ops
