// Waits: the threads that are in wait(), and whether the holder of the progress lock knows of all of them.
//
// Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace ciranda {

class Waits {
 public:
  bool are_any() const { return n_waiting_.load() > 0; }

  // The holder of the lock: that it knows of all that have begun by now. Whether that is still so.
  void heed() { n_heeded_.store(n_begun_.load()); }
  bool are_heeded() const { return n_begun_.load() == n_heeded_.load(); }

 private:
  friend class Waiting;
  std::atomic<int> n_waiting_{0};
  std::atomic<std::uint64_t> n_begun_{0};
  std::atomic<std::uint64_t> n_heeded_{0};
};

// A thread in wait(). Once its operation is done it waits no more, though it may still hold the lock.
class Waiting {
 public:
  explicit Waiting(Waits& waits) : waits_(waits) {
    waits_.n_waiting_.fetch_add(1);
    waits_.n_begun_.fetch_add(1);
  }
  ~Waiting() { end(); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  void end() {
    if (!std::exchange(has_ended_, true)) waits_.n_waiting_.fetch_sub(1);
  }

 private:
  Waits& waits_;
  bool has_ended_ = false;
};

}  // namespace ciranda
