#include "observe/timeline.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/own_thread.hpp"
#include "observe/ticks.hpp"

namespace ciranda {
namespace {

// The most by which the file lags behind, and so the most that is lost if the process is killed.
constexpr std::chrono::milliseconds kBetweenLooks{10};
// After a look that has found many, the next is sooner: the ring must not be full before.
constexpr std::size_t kMany = Recorder::kMostRecords / 16;
constexpr std::size_t kMostAtOnce = Recorder::kMostRecords;
constexpr std::size_t kMostUnwrittenBytes = std::size_t{1} << 16U;

std::int64_t epoch_us() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return (std::chrono::duration_cast<std::chrono::nanoseconds>(now).count() - monotonic_ns()) / 1000;
}

}  // namespace

Result<std::unique_ptr<Timeline>> Timeline::create(const Options& options, std::unique_ptr<RecordFormat> format,
                                                   std::shared_ptr<Recorder> recorder, const Logger& logger) {
  constexpr int kMode = 0666;
  const int how = options.appends ? O_APPEND : O_CREAT | O_TRUNC;
  // O_NONBLOCK: for a pipe without a reader, open() fails instead of waiting for one.
  UniqueFd file(::open(options.path.c_str(), O_WRONLY | how | O_CLOEXEC | O_NONBLOCK, kMode));
  if (!file.valid()) {
    return Status::invalid_argument("the timeline cannot be written to " + options.path + ": " + std::strerror(errno));
  }
  if (options.appends && ::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    return Status::invalid_argument("the timeline cannot be written to " + options.path + ": another process does");
  }
  ::fcntl(file.get(), F_SETFL, ::fcntl(file.get(), F_GETFL) & ~O_NONBLOCK);
  return std::unique_ptr<Timeline>(
      new Timeline(std::move(file), options, std::move(format), std::move(recorder), logger));
}

Timeline::Timeline(UniqueFd file, const Options& options, std::unique_ptr<RecordFormat> format,
                   std::shared_ptr<Recorder> recorder, const Logger& logger)
    : path_(options.path),
      logger_(logger),
      file_(std::move(file)),
      recording_(std::move(recorder)),
      format_(std::move(format)) {
  std::string text;
  format_->begin(epoch_us(), text);
  put(text);
  writer_ = std::thread([this] { run(); });
}

Timeline::~Timeline() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  ends_.notify_one();
  writer_.join();
  write_new_records();
  std::string text;
  format_->end(text);
  put(text);
  if (n_told_lost_ > 0) {
    logger_.warning("the timeline " + path_ + " lacks " + std::to_string(n_told_lost_) +
                    " calls, because they completed faster than they could be written");
  }
  ::flock(file_.get(), LOCK_UN);  // a child that has inherited the descriptor would keep the lock
}

void Timeline::run() {
  const OwnThread own;
  std::unique_lock lock(mutex_);
  std::chrono::milliseconds until_look = kBetweenLooks;
  while (!ends_.wait_for(lock, until_look, [this] { return is_ending_; })) {
    lock.unlock();
    const std::size_t n_written = write_new_records();
    // With more to write, the thread keeps its core: it may wait long for another.
    until_look = n_written < kMany ? kBetweenLooks : std::chrono::milliseconds(n_written < kMostAtOnce ? 1 : 0);
    lock.lock();
  }
}

void Timeline::add_step(std::uint64_t n_steps) {
  const std::lock_guard lock(mutex_);
  new_steps_.emplace_back(n_steps, monotonic_ns());
}

void Timeline::write_new_steps() {
  std::vector<std::pair<std::uint64_t, std::int64_t>> steps;
  {
    const std::lock_guard lock(mutex_);
    steps.swap(new_steps_);
  }
  std::string text;
  for (const auto& [n_steps, at_ns] : steps) format_->add_step(n_steps, at_ns, text);
  put(text);
}

// Writes at most kMostAtOnce: other threads may add records without end meanwhile. Returns how many.
std::size_t Timeline::write_new_records() {
  write_new_steps();
  std::string text;
  Record record;
  std::size_t n_written = 0;
  for (; n_written < kMostAtOnce && recording_.read(record); ++n_written) {
    if (recording_.n_lost() > n_told_lost_) {
      format_->add_lost(recording_.n_lost() - n_told_lost_, record[Stage::kSubmitted], text);
      n_told_lost_ = recording_.n_lost();
    }
    format_->add(record, text);
    if (text.size() > kMostUnwrittenBytes) put(text);
  }
  put(text);
  return n_written;
}

// Writes the whole text, and clears it; does not write after an earlier failure.
void Timeline::put(std::string& text) {
  std::string_view rest = text;
  while (!rest.empty() && !is_broken_) {
    const auto n_bytes = ::write(file_.get(), rest.data(), rest.size());
    if (n_bytes >= 0) {
      rest.remove_prefix(static_cast<std::size_t>(n_bytes));
    } else if (errno != EINTR) {
      logger_.warning("the timeline " + path_ + " is incomplete, and goes no further: " + std::strerror(errno));
      is_broken_ = true;
    }
  }
  text.clear();
}

}  // namespace ciranda
