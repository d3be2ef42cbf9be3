// DeviceWork: work in a device's queue that makes results of a call. The call is done once the work is queued: who
// waits for the call orders a queue behind the work, and the host waits for no device. How the work has ended is known
// later. If it ends badly, or the world fails before it has ended, its results are void.
//
// Called by NcclCollective, through RunningCollective, which makes it, PeerStream, which ends it, DataPlane and
// Unended. Any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/device_event.hpp"
#include "base/status.hpp"

namespace ciranda {

class DeviceWork final : public DeviceEvent, public std::enable_shared_from_this<DeviceWork> {
 public:
  // What the work comes after, of no graph; and what runs a function on the device's thread.
  struct Before {
    std::vector<DeviceEventPtr> events;
    std::function<void(std::function<void()>)> on_thread;
  };
  // `where`: as in "on GPU 0". `trouble`: what has gone wrong so far, asked while the work has not ended.
  DeviceWork(std::string where, Before before, std::function<Status()> trouble)
      : where_(std::move(where)), before_(std::move(before)), trouble_(std::move(trouble)) {}

  // The event behind the work. REQUIRES: no other thread asks for it yet.
  void queued(DeviceEventPtr event) { event_ = std::move(event); }
  // Once: the device no longer uses the call's memory. Ok: the results are there.
  void end(Status outcome) {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
    outcome_ = std::move(outcome);
  }
  // From now on the results must not be used, unless they are there. Returns false if they are.
  bool make_void(Status why) {
    const std::lock_guard lock(mutex_);
    if (has_ended_ && outcome_.ok()) return false;
    void_ = std::move(why);
    return true;
  }

  const std::string& where() const { return where_; }
  // Whether the device has come to the work, as far as is known: asks its thread, which this one does not wait for, as
  // a call of the driver may take as long as the device. If so, and the work does not end, the device may wait for
  // those of other ranks.
  bool has_come() {
    before_.on_thread([self = shared_from_this()] {
      const auto has_passed = [](const DeviceEventPtr& event) { return event->has_passed(); };
      if (std::ranges::all_of(self->before_.events, has_passed)) self->has_come_.store(true);
    });
    return has_come_.load();
  }
  bool has_ended() const {
    const std::lock_guard lock(mutex_);
    return has_ended_;
  }
  // How it has ended, or what has gone wrong meanwhile.
  Status status() const {
    {
      const std::lock_guard lock(mutex_);
      if (has_ended_) return outcome_;
    }
    return trouble_();
  }

  // Fails if the results are void.
  Status order(const Place& place) const override {
    {
      const std::lock_guard lock(mutex_);
      if (!void_.ok()) return void_;
      if (has_ended_ && !outcome_.ok()) return outcome_;
    }
    return event_->order(place);
  }
  // Whether the results are there.
  bool has_passed() const override {
    const std::lock_guard lock(mutex_);
    return has_ended_ && outcome_.ok() && void_.ok();
  }

 private:
  const std::string where_;
  const Before before_;
  const std::function<Status()> trouble_;
  std::atomic<bool> has_come_{false};
  DeviceEventPtr event_;
  mutable std::mutex mutex_;
  bool has_ended_ = false;
  Status outcome_;
  Status void_;  // ok: they are not
};

}  // namespace ciranda
