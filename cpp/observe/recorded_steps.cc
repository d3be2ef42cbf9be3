#include "observe/recorded_steps.hpp"

#include <utility>

#include "base/block_signals.hpp"
#include "observe/binary_format.hpp"

namespace ciranda {

RecordedSteps::RecordedSteps(Options options, std::shared_ptr<Recorder> recorder, const Logger& logger)
    : options_(std::move(options)), recorder_(std::move(recorder)), logger_(logger) {
  if (options_.path.empty()) return;
  recorder_->want(Recorder::kMostRecordedSteps);
  if (options_.from == 0) begin(options_.path);
}

void RecordedSteps::begin(const std::string& path) {
  const BlockSignals blocked;  // inherited by its thread
  auto timeline =
      Timeline::create({path, true}, std::make_unique<BinaryFormat>(options_.rank, options_.size), recorder_, logger_);
  if (!timeline.ok()) return logger_.warning(timeline.status().message());
  timeline_ = std::move(timeline).value();
}

void RecordedSteps::start(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (has_ended_ || !options_.path.empty() || path == started_) return;
  started_ = path;
  timeline_.reset();
  recorder_->want(Recorder::kMostRecordedSteps);
  begin(path);
}

void RecordedSteps::stop() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(started_, {}).empty()) return;
  timeline_.reset();
}

void RecordedSteps::count_step() {
  const std::lock_guard lock(mutex_);
  if (has_ended_) return;
  ++n_steps_;
  const bool is_bounded = !options_.path.empty();
  if (is_bounded && n_steps_ == options_.from) begin(options_.path);
  if (timeline_) timeline_->add_step(n_steps_);
  if (is_bounded && n_steps_ == options_.until) timeline_.reset();
}

void RecordedSteps::end() {
  const std::lock_guard lock(mutex_);
  has_ended_ = true;
  timeline_.reset();
}

}  // namespace ciranda
