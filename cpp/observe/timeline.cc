#include "observe/timeline.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <utility>

#include "observe/ticks.hpp"

namespace ciranda {
namespace {

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
    : path_(options.path), logger_(logger), file_(std::move(file)), format_(std::move(format)) {
  format_->begin(epoch_us(), text_);
  put(text_);
  reader_.emplace(
      std::move(recorder),
      RecordReader::Owner{.take = [this](const Record& record, std::uint64_t n_lost) { write(record, n_lost); },
                          .after_look = [this] { flush(); },
                          .wants_arrivals = format_->wants_arrivals()});
}

Timeline::~Timeline() {
  reader_->end();
  format_->end(text_);
  put(text_);
  if (n_lost_ > 0) {
    logger_.warning("the timeline " + path_ + " lacks " + std::to_string(n_lost_) +
                    " calls, because they completed faster than they could be written");
  }
  ::flock(file_.get(), LOCK_UN);  // a child that has inherited the descriptor would keep the lock
}

void Timeline::add_step(std::uint64_t n_steps) {
  const std::lock_guard lock(mutex_);
  new_steps_.emplace_back(n_steps, monotonic_ns());
}

void Timeline::flush() {
  std::vector<std::pair<std::uint64_t, std::int64_t>> steps;
  {
    const std::lock_guard lock(mutex_);
    steps.swap(new_steps_);
  }
  for (const auto& [n_steps, at_ns] : steps) format_->add_step(n_steps, at_ns, text_);
  put(text_);
}

void Timeline::write(const Record& record, std::uint64_t n_lost) {
  if (n_lost > 0) format_->add_lost(n_lost, record[Stage::kSubmitted], text_);
  n_lost_ += n_lost;
  format_->add(record, text_);
  if (text_.size() > kMostUnwrittenBytes) put(text_);
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
