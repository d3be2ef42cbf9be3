// Held: protects the arrays that a blocking call reads from writes during the call, by one operation of MXNet's engine.
// It is not enough to wait for an array: MXNet's convolutions change the layout of their weights later.
//
// Ownership: references its arrays until it ends.
// Threads: any; MXNet's engine calls it on one of its own.
//
// Called by plugin.cc.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "bindings/mxnet/layout.hpp"
#include "bindings/mxnet/mx_api.hpp"

namespace ciranda::mxnet {

class Held {
 public:
  // Waits until no operation writes the arrays, and holds them. Null if an array has failed, or if MXNet cannot do it:
  // then `problem` has the reason. With MXNet's naive engine, which runs no concurrent operations, it only waits.
  static std::unique_ptr<Held> take(std::span<const ArrayHandle> arrays, std::string& problem);
  Held() = default;
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  // Releases the arrays.
  ~Held();

  // The address of each array, in the order given.
  const std::vector<void*>& data() const { return data_; }

 private:
  enum class State : std::uint8_t { kWaiting, kHolds, kFailed };
  class Operation;

  void begin(const OnComplete& done);
  void note(State state);

  std::vector<Array> arrays_;
  Copies copies_;
  std::vector<void*> data_;
  std::string problem_;
  OnComplete done_{};
  std::mutex lock_;
  std::condition_variable changed_;
  State state_ = State::kWaiting;
};

}  // namespace ciranda::mxnet
