#include "call/callback_threads.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "base/block_signals.hpp"
#include "base/own_thread.hpp"
#include "call/callbacks.hpp"

namespace ciranda {

// Invariant: if the mutex is free and a flushed callback is queued, a thread is on its way to the queue or stands by.
class CallbackThreads::State : public std::enable_shared_from_this<State> {
 public:
  explicit State(std::chrono::nanoseconds until_idle_ends) : until_idle_ends_(until_idle_ends) {}

  void post(Callback callback) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(callback));
    is_unflushed_.store(true, std::memory_order_relaxed);
  }

  void flush() {
    if (!is_unflushed_.load(std::memory_order_relaxed)) return;
    std::unique_lock lock(mutex_);
    is_unflushed_.store(false, std::memory_order_relaxed);
    if (!queue_.empty() && !call_a_thread()) run_all_directly(lock);
  }

  bool are_idle() {
    const std::lock_guard lock(mutex_);
    return queue_.empty() && n_running_ == 0;
  }

  void finish() {
    flush();
    std::unique_lock lock(mutex_);
    let_go(std::this_thread::get_id());
    ++n_finishing_;
    called_.notify_all();
    has_ended_.wait(lock, [this] { return threads_.empty(); });
    --n_finishing_;
    join_ended();
  }

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Clock = std::chrono::steady_clock;

  // Callbacks that only hand work on take less time than this, so many of them need no more threads.
  static constexpr std::chrono::microseconds kQuick{100};

  // REQUIRES: the lock. False if there is no thread, and none can be created.
  bool call_a_thread() {
    if (n_called_ > 0 || (stands_by_ && n_running_ > 0)) return true;
    if (n_idle_ > 0) {
      ++n_called_;
      called_.notify_one();
      return true;
    }
    if (stands_by_) {
      has_work_.notify_one();
      return true;
    }
    join_ended();
    try {
      const BlockSignals blocked;  // inherited by the thread
      threads_.emplace_back([self = shared_from_this()] { self->run(); });
    } catch (const std::exception&) {
      return !threads_.empty();  // one of them returns to the queue, unless all wait for each other
    }
    ++n_called_;
    return true;
  }

  void run() {
    const OwnThread own;
    Lock lock(mutex_);
    while (is_called(lock)) {
      stand_by(lock);
      while (!queue_.empty()) {
        if (!run_next(lock)) return;
      }
    }
    end();
  }

  // REQUIRES: the lock.
  bool is_called(Lock& lock) {
    ++n_idle_;
    called_.wait_for(lock, until_idle_ends_, [this] { return n_called_ > 0 || n_finishing_ > 0; });
    --n_idle_;
    if (n_called_ == 0) return false;
    --n_called_;
    return true;
  }

  // REQUIRES: the lock. Returns when no callback is queued, or when no other thread will return to the queue soon.
  void stand_by(Lock& lock) {
    stands_by_ = true;
    while (n_running_ > 0 && !queue_.empty()) {
      const auto due = last_begun_ + kQuick;
      if (Clock::now() >= due) break;
      has_work_.wait_until(lock, due);
    }
    stands_by_ = false;
  }

  // REQUIRES: the lock, and a queued callback. False if the callback called finish(): the thread is then detached.
  bool run_next(Lock& lock) {
    Callback next = std::move(queue_.front());
    queue_.pop_front();
    last_begun_ = Clock::now();
    ++n_running_;
    if (!queue_.empty()) call_a_thread();
    lock.unlock();
    call_back(next);
    next = nullptr;  // its destructor may call this object
    lock.lock();
    --n_running_;
    return find(std::this_thread::get_id()) != threads_.end();
  }

  // REQUIRES: the lock, which is released while a callback runs.
  void run_all_directly(Lock& lock) {
    while (!queue_.empty()) {
      Callback next = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      {
        const DirectCallback direct;
        call_back(next);
        next = nullptr;
      }
      lock.lock();
    }
  }

  // REQUIRES for all below: the lock.
  std::list<std::thread>::iterator find(std::thread::id id) {
    return std::find_if(threads_.begin(), threads_.end(), [id](const auto& thread) { return thread.get_id() == id; });
  }

  // Detaches this thread if it belongs to this object.
  void let_go(std::thread::id id) {
    const auto found = find(id);
    if (found == threads_.end()) return;
    found->detach();
    threads_.erase(found);
    has_ended_.notify_all();
  }

  void end() {
    ended_.splice(ended_.end(), threads_, find(std::this_thread::get_id()));
    has_ended_.notify_all();
  }

  void join_ended() {
    for (std::thread& thread : ended_) thread.join();
    ended_.clear();
  }

  const std::chrono::nanoseconds until_idle_ends_;
  std::atomic<bool> is_unflushed_{false};
  std::mutex mutex_;  // guards all members below
  std::condition_variable called_;
  std::condition_variable has_work_;  // for the thread that stands by
  std::condition_variable has_ended_;
  std::deque<Callback> queue_;
  std::list<std::thread> threads_;
  std::list<std::thread> ended_;  // threads that have ended, or are about to; to be joined
  int n_idle_ = 0;
  int n_called_ = 0;     // idle or new threads that were called and have not reached the queue yet
  int n_running_ = 0;    // callbacks
  int n_finishing_ = 0;  // calls of finish()
  bool stands_by_ = false;
  Clock::time_point last_begun_;  // start time of the last callback
};

CallbackThreads::CallbackThreads(std::chrono::nanoseconds until_idle_ends)
    : state_(std::make_shared<State>(until_idle_ends)) {}
CallbackThreads::~CallbackThreads() { finish(); }

void CallbackThreads::post(Callback callback) { state_->post(std::move(callback)); }
void CallbackThreads::flush() { state_->flush(); }
bool CallbackThreads::are_idle() const { return state_->are_idle(); }
void CallbackThreads::finish() { state_->finish(); }

}  // namespace ciranda
