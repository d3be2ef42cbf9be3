#include "stream.hpp"

#include <unistd.h>

#include <chrono>
#include <thread>
#include <utility>

#include "captures.hpp"
#include "checker.hpp"
#include "settings.hpp"
#include "workers.hpp"

namespace ciranda::fakes {
namespace {

unsigned next_number() {
  static std::atomic<unsigned> last{0};
  return ++last;
}

}  // namespace

bool Point::is_reached() const { return stream == nullptr || stream->has_reached(position); }

void Point::wait() const {
  if (stream != nullptr) stream->wait_for(position);
}

Stream::Stream(int device, Type type, DefaultOrder& order, std::atomic<CUresult>& fault)
    : number_(next_number()), device_(device), type_(type), order_(order), fault_(fault) {
  draws_.seed(static_cast<unsigned>(settings()->delay_seed * 7919 + number_));
}

CUresult Stream::enqueue(Launch launch, Point* reached) {
  if (captures().take(*this, launch)) return CUresult::kSuccess;
  if (captures().hold_up(*this)) {
    captures().spoil(*this);
    return CUresult::kStreamCaptureImplicit;
  }
  const std::lock_guard turn(turn_);
  wait_for_room();
  if (launch.prepare) launch.run = launch.prepare();
  Operation operation{launch.call, std::move(launch.waits), std::move(launch.run), {}, 0};
  {
    const std::lock_guard lock(checker().mutex());
    for (Point& each : order_.before(*this)) operation.waits.push_back(std::move(each));
    operation.position = n_given_ + 1;
    VectorClock clock = clock_;
    clock.join(checker().known_here());
    for (const Point& each : operation.waits) clock.join(each.clock);
    clock.add({number_, operation.position});
    const CUresult touched = checker().touch(use_of(launch, operation.position), launch.touches, clock);
    if (touched != CUresult::kSuccess) return touched;
    clock_ = operation.clock = std::move(clock);
    n_given_ = operation.position;
    if (reached != nullptr) *reached = {shared_from_this(), n_given_, clock_};
  }
  push(std::move(operation));
  return CUresult::kSuccess;
}

UseOf Stream::use_of(const Launch& launch, std::uint64_t position) const {
  std::string what = launch.call;
  if (!launch.detail.empty()) what += " of " + launch.detail;
  what += " (operation " + std::to_string(position) + " of stream " + std::to_string(number_) + ", device " +
          std::to_string(device_) + ")";
  return std::make_shared<const Use>(Use{{number_, position}, std::move(what)});
}

void Stream::wait_for_room() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return n_pending_ < settings()->longest_queue || workers().are_over(); });
}

void Stream::push(Operation operation) {
  if (!std::exchange(has_begun_, true)) {
    workers().start([self = shared_from_this()] { self->work(); }, [self = weak_from_this()] { wake(self); });
  }
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(operation));
  ++n_pending_;
  changed_.notify_all();
}

void Stream::wake(const std::weak_ptr<Stream>& stream) {
  const auto awake = stream.lock();
  if (awake == nullptr) return;
  const std::lock_guard lock(awake->mutex_);  // not between what it waits for and its wait
  awake->changed_.notify_all();
}

void Stream::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  changed_.notify_all();
}

std::vector<Point> Stream::ends() {
  const std::lock_guard lock(checker().mutex());
  std::vector<Point> points;
  if (type_ == Type::kLegacy) points = order_.before(*this);
  points.push_back(tail());
  return points;
}

Point Stream::tail() { return {shared_from_this(), n_given_, clock_}; }

bool Stream::has_reached(std::uint64_t position) {
  const std::lock_guard lock(mutex_);
  return n_run_ >= position;
}

void Stream::wait_for(std::uint64_t position) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this, position] { return n_run_ >= position || workers().are_over(); });
}

void Stream::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return is_closed_ || !queue_.empty() || workers().are_over(); });
    if (queue_.empty() || workers().are_over()) return;
    Operation operation = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    run(operation);
    operation.run = nullptr;  // with what it keeps alive
    lock.lock();
    n_run_ = operation.position;
    --n_pending_;
    changed_.notify_all();
  }
}

void Stream::run(Operation& operation) {
  for (const Point& each : operation.waits) each.wait();
  stand_still(operation.position);
  delay();
  if (fault_.load() != CUresult::kSuccess || workers().are_over()) return;
  CUresult outcome = count_run(operation.call);
  if (outcome == CUresult::kSuccess && operation.run) outcome = operation.run(operation.clock);
  if (outcome == CUresult::kSuccess) return;
  CUresult none = CUresult::kSuccess;
  fault_.compare_exchange_strong(none, outcome);
}

void Stream::stand_still(std::uint64_t position) const {
  for (const Still& each : settings()->stills) {
    if (each.stream != number_ || each.operation != position) continue;
    while (access(each.file.c_str(), F_OK) != 0 && !workers().are_over())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// One operation in four is delayed.
void Stream::delay() {
  const auto now = settings();
  if (now->delay_seed == 0 || now->longest_delay_us == 0 || draws_() % 4 != 0) return;
  std::this_thread::sleep_for(std::chrono::microseconds(draws_() % now->longest_delay_us));
}

void DefaultOrder::add(const std::shared_ptr<Stream>& stream) {
  const std::lock_guard lock(mutex_);
  if (stream->type() == Stream::Type::kLegacy) legacy_ = stream;
  if (stream->type() == Stream::Type::kBlocking) blocking_.push_back(stream);
}

std::vector<Point> DefaultOrder::before(const Stream& stream) {
  std::vector<Point> points;
  const std::lock_guard lock(mutex_);
  if (stream.type() == Stream::Type::kBlocking) {
    if (const auto legacy = legacy_.lock()) points.push_back(legacy->tail());
  }
  if (stream.type() == Stream::Type::kLegacy) {
    std::erase_if(blocking_, [](const auto& each) { return each.expired(); });
    for (const auto& each : blocking_) {
      if (const auto blocking = each.lock()) points.push_back(blocking->tail());
    }
  }
  return points;
}

}  // namespace ciranda::fakes
