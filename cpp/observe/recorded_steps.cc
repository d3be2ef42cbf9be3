#include "observe/recorded_steps.hpp"

#include <utility>

#include "base/block_signals.hpp"
#include "observe/binary_format.hpp"

namespace ciranda {

RecordedSteps::RecordedSteps(Options options, std::shared_ptr<Recorder> recorder, const Logger& logger)
    : options_(std::move(options)), recorder_(std::move(recorder)), logger_(logger) {
  if (options_.from == 0) begin();
}

void RecordedSteps::begin() {
  const BlockSignals blocked;  // inherited by its thread
  auto timeline = Timeline::create({options_.path, true}, std::make_unique<BinaryFormat>(options_.rank, options_.size),
                                   recorder_, logger_);
  if (!timeline.ok()) return logger_.warning(timeline.status().message());
  timeline_ = std::move(timeline).value();
}

void RecordedSteps::count_step() {
  const std::lock_guard lock(mutex_);
  if (has_ended_) return;
  ++n_steps_;
  if (n_steps_ == options_.from) begin();
  if (timeline_) timeline_->add_step(n_steps_);
  if (n_steps_ == options_.until) timeline_.reset();
}

void RecordedSteps::end() {
  const std::lock_guard lock(mutex_);
  has_ended_ = true;
  timeline_.reset();
}

}  // namespace ciranda
