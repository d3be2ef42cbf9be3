// Watchdog: ends the test program with a message when a test hangs, which is what these tests look for.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

namespace ciranda::testing {

class Watchdog {
 public:
  explicit Watchdog(std::string what, std::chrono::seconds patience = std::chrono::seconds(240))
      : thread_([this, what = std::move(what), patience] {
          std::unique_lock lock(mutex_);
          if (over_.wait_for(lock, patience, [this] { return is_over_; })) return;
          std::fprintf(stderr, "hangs: %s\n", what.c_str());
          std::abort();
        }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    over_.notify_one();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace ciranda::testing
