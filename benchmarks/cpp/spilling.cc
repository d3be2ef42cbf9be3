// Measures whether a timeline keeps up: writes records of calls at a given rate, as a rank does with `ciranda run
// --timeline`, while the timeline's thread writes them to a file.
//
//   spilling [--rate 500000] [--seconds 5] [--ring 131072]
//
// Prints a line of JSON: the records written and lost; how many there were a second, which are fewer than wanted where
// the thread waits for a core; and the nanoseconds that writing one takes the caller, at the median of pieces of 64.
// The file is in /tmp: mount there what is to be tried.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "observe/binary_format.hpp"
#include "observe/recording.hpp"
#include "observe/timeline.hpp"

namespace ciranda {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPiece = 64;

// Counts what the timeline is told.
class Counted final : public RecordFormat {
 public:
  explicit Counted(std::uint64_t& n_lost) : n_lost_(n_lost) {}
  void begin(std::int64_t epoch_us, std::string& to) override { format_.begin(epoch_us, to); }
  void add(const Record& record, std::string& to) override { format_.add(record, to); }
  void add_step(std::uint64_t n_steps, std::int64_t at_ns, std::string& to) override {
    format_.add_step(n_steps, at_ns, to);
  }
  void add_lost(std::uint64_t n_records, std::int64_t at_ns, std::string& to) override {
    n_lost_ += n_records;
    format_.add_lost(n_records, at_ns, to);
  }
  void end(std::string& to) override { format_.end(to); }

 private:
  std::uint64_t& n_lost_;
  BinaryFormat format_{0, 1};
};

int number_after(const std::string& flag, int argc, char** argv, int otherwise) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (argv[i] == flag) return std::atoi(argv[i + 1]);
  }
  return otherwise;
}

// Returns the nanoseconds of a record in each piece.
std::vector<double> write_at(int rate, int seconds, Recorder& recorder) {
  const auto between = std::chrono::nanoseconds(std::chrono::seconds(1)) / rate * kPiece;
  std::vector<double> took;
  auto due = Clock::now();
  const auto end = due + std::chrono::seconds(seconds);
  for (auto now = due; now < end; now = Clock::now()) {
    if (now < due) continue;
    due = std::max(due, now - between) + between;  // what it could not write in time is left out
    const auto begin = Clock::now();
    for (int i = 0; i < kPiece; ++i) {
      Stages stages;
      for (std::size_t stage = 0; stage < kStageCount; ++stage) stages.note(static_cast<Stage>(stage));
      recorder.write({.name = "layers.12.weight", .n_bytes = 4, .dtype = DataType::kFloat32}, stages);
    }
    took.push_back(std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / kPiece);
  }
  return took;
}

int run(int argc, char** argv) {
  std::string name = "/tmp/ciranda_spilling_XXXXXX";
  ::close(::mkstemp(name.data()));
  const auto recorder = std::make_shared<Recorder>(
      static_cast<std::size_t>(number_after("--ring", argc, argv, Recorder::kMostRecordedSteps)));
  std::uint64_t n_lost = 0;
  const Logger logger(0, LogLevel::kError);
  auto timeline = Timeline::create({name, true}, std::make_unique<Counted>(n_lost), recorder, logger);
  if (!timeline.ok()) return 1;
  const int rate = number_after("--rate", argc, argv, 500'000);
  const int seconds = number_after("--seconds", argc, argv, 5);
  std::vector<double> took = write_at(rate, seconds, *recorder);
  timeline.value().reset();
  ::unlink(name.c_str());
  const auto middle = took.begin() + static_cast<std::ptrdiff_t>(took.size() / 2);
  std::nth_element(took.begin(), middle, took.end());
  const std::size_t n_written = took.size() * kPiece;
  std::printf(R"({"written": %zu, "lost": %llu, "per_second": %zu, "ns_per_record": %.1f})"
              "\n",
              n_written, static_cast<unsigned long long>(n_lost), n_written / static_cast<std::size_t>(seconds),
              *middle);
  return 0;
}

}  // namespace
}  // namespace ciranda

int main(int argc, char** argv) { return ciranda::run(argc, argv); }
