// The timer by which DistributedDataParallel measures its steps on a GPU: here by the host's clock.

#include <cstdint>
#include <optional>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

namespace c10d {
namespace {

class HostTimer final : public Timer {
 public:
  explicit HostTimer(c10::Device) {}

  std::optional<std::int64_t> measureDifference(Event start, Event end) override {
    const std::int64_t began = getTimeRef(start);
    const std::int64_t ended = getTimeRef(end);
    return ended < began ? std::nullopt : std::optional(ended - began);
  }
};

}  // namespace

C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::kCUDA, HostTimer)

}  // namespace c10d
