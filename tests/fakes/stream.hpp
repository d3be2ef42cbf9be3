// Stream: a thread that runs operations one after the other. It accepts as many as a launch queue holds; who gives it
// one more is blocked.
//
// Threads: any.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "shadow.hpp"
#include "twins.hpp"
#include "types.hpp"
#include "vector_clock.hpp"

namespace ciranda::fakes {

class Stream;
class DefaultOrder;

// A moment of a stream, and all that has happened before it.
struct Point {
  std::shared_ptr<Stream> stream;
  std::uint64_t position = 0;
  VectorClock clock;

  bool is_reached() const;
  void wait() const;
};

// What a stream is given.
struct Launch {
  const char* call;
  std::string detail = {};          // what of: a kernel's name
  std::vector<Touch> touches = {};  // of memory that streams may use
  std::vector<Point> waits = {};    // before it begins
  using Run = std::function<CUresult(const VectorClock&)>;
  Run run = {};                       // on the stream's thread, with the operation's own clock
  std::function<Run()> prepare = {};  // makes it each time that this is given to a stream, for which it is counted
};

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  enum class Type { kLegacy, kBlocking, kNonBlocking };

  // `fault`: the error of the context, which ends all work in it. Both outlive the process's threads.
  Stream(int device, Type type, DefaultOrder& order, std::atomic<CUresult>& fault);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Blocks while the queue is full. Fails with kIllegalAddress if the operation touches memory that is not there.
  CUresult enqueue(Launch launch, Point* reached = nullptr);
  // Its thread ends once it has run what it was given.
  void close();

  // The end of all that it was given until now; of the legacy default stream, also what that is ordered after.
  std::vector<Point> ends();
  // The end of what it was given itself. REQUIRES: the checker's lock.
  Point tail();
  bool has_reached(std::uint64_t position);
  void wait_for(std::uint64_t position);

  int device() const { return device_; }
  Type type() const { return type_; }
  unsigned number() const { return number_; }

 private:
  struct Operation {
    const char* call;
    std::vector<Point> waits;
    std::function<CUresult(const VectorClock&)> run;
    VectorClock clock;
    std::uint64_t position;
  };

  void wait_for_room();
  UseOf use_of(const Launch& launch, std::uint64_t position) const;
  void push(Operation operation);
  static void wake(const std::weak_ptr<Stream>& stream);
  void work();
  void run(Operation& operation);
  void stand_still(std::uint64_t position) const;
  void delay();

  const unsigned number_;  // in the process, from 1 on, in the order in which streams were made
  const int device_;
  const Type type_;
  DefaultOrder& order_;
  std::atomic<CUresult>& fault_;

  std::mutex turn_;         // operations are queued in the order of their positions
  bool has_begun_ = false;  // its thread
  VectorClock clock_;       // with the checker's lock
  std::uint64_t n_given_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Operation> queue_;
  std::uint64_t n_run_ = 0;
  std::size_t n_pending_ = 0;
  bool is_closed_ = false;
  std::minstd_rand draws_;  // of its own thread
};

// Which streams of a context are ordered with its legacy default stream: the blocking ones.
class DefaultOrder {
 public:
  void add(const std::shared_ptr<Stream>& stream);
  // What an operation comes after that `stream` is given now. REQUIRES: the checker's lock.
  std::vector<Point> before(const Stream& stream);

 private:
  std::mutex mutex_;
  std::weak_ptr<Stream> legacy_;
  std::vector<std::weak_ptr<Stream>> blocking_;
};

}  // namespace ciranda::fakes
