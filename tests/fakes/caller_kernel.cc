#include "caller_kernel.hpp"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

#include "address_map.hpp"
#include "call.hpp"

namespace ciranda::fakes {
namespace {

// Where the thread of the stream and the caller meet.
class Meeting {
 public:
  void stream_is_there() {
    std::unique_lock lock(mutex_);
    is_there_ = true;
    changed_.notify_all();
    // A process that ends waits for the threads of its streams, whoever it left in a kernel.
    while (!has_ended_ && !workers().are_over()) changed_.wait_for(lock, std::chrono::milliseconds(10));
  }

  // The stream will not come, since an error has ended its context.
  void give_up() {
    const std::lock_guard lock(mutex_);
    is_there_ = true;
    changed_.notify_all();
  }

  void wait_for_stream() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_there_; });
  }

  void end() {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_there_ = false;
  bool has_ended_ = false;
};

// What the stream holds: it ends with the operation, also with one that never ran.
class Invitation {
 public:
  explicit Invitation(std::shared_ptr<Meeting> meeting) : meeting_(std::move(meeting)) {}
  Invitation(const Invitation&) = delete;
  Invitation& operator=(const Invitation&) = delete;
  ~Invitation() { meeting_->give_up(); }

  Meeting& meeting() const { return *meeting_; }

 private:
  std::shared_ptr<Meeting> meeting_;
};

using Kept = std::shared_ptr<Meeting>;

Launch launch_of(const char* name, std::span<const CallerTouch> touches, const Kept& meeting) {
  Launch launch{.call = "fake_cuda_begin_kernel", .detail = name};
  for (const CallerTouch& each : touches) {
    launch.touches.push_back({reinterpret_cast<const std::byte*>(each.begin), each.n_bytes, each.writes});
  }
  launch.run = [invitation = std::make_shared<Invitation>(meeting)](const VectorClock&) {
    invitation->meeting().stream_is_there();
    return CUresult::kSuccess;
  };
  return launch;
}

}  // namespace

CUresult fake_cuda_begin_kernel(void** kernel, CUstream handle, const char* name, const CallerTouch* touches,
                                std::size_t n_touches) {
  const auto meeting = std::make_shared<Meeting>();
  const CUresult given = on_stream("fake_cuda_begin_kernel", handle, [&](Context&, Stream& stream) {
    return stream.enqueue(launch_of(name, {touches, n_touches}, meeting));
  });
  if (given != CUresult::kSuccess) return given;
  meeting->wait_for_stream();
  if (const CUresult fault = current_context()->fault; fault != CUresult::kSuccess) {
    meeting->end();
    return fault;
  }
  *kernel = new Kept(meeting);
  return CUresult::kSuccess;
}

void fake_cuda_end_kernel(void* kernel) {
  const std::unique_ptr<Kept> kept(static_cast<Kept*>(kernel));
  (*kept)->end();
}

void* fake_cuda_in_kernel(CUdeviceptr address) {
  return address_map().in_kernel(reinterpret_cast<const std::byte*>(address));
}

}  // namespace ciranda::fakes
