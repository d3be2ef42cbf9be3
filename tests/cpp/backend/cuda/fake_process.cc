#include "backend/cuda/fake_process.hpp"

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <memory>
#include <optional>

namespace ciranda::cuda::testing {
namespace {

constexpr const char* kSearched = "LD_LIBRARY_PATH";

// Sets a variable for the processes that are started meanwhile.
class Setting {
 public:
  explicit Setting(const Variable& variable) : name_(variable.name) {
    if (const char* before = std::getenv(name_.c_str()); before != nullptr) before_ = before;
    setenv(name_.c_str(), variable.value.c_str(), 1);
  }
  ~Setting() {
    if (before_) {
      setenv(name_.c_str(), before_->c_str(), 1);
    } else {
      unsetenv(name_.c_str());
    }
  }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  std::string name_;
  std::optional<std::string> before_;
};

// LeakSanitizer stops all threads when a process ends, and fails where the fake's threads end at the same time.
std::string without_leaks() {
  const char* const options = std::getenv("ASAN_OPTIONS");
  return (options != nullptr ? std::string(options) + ":" : std::string()) + "detect_leaks=0";
}

class Settings {
 public:
  explicit Settings(const Environment& environment)
      : fake_({kSearched, CIRANDA_FAKE_CUDA}), leaks_({"ASAN_OPTIONS", without_leaks()}) {
    for (const Variable& each : environment) settings_.push_back(std::make_unique<Setting>(each));
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // a new process, which reads LD_LIBRARY_PATH
  }

 private:
  Setting fake_;
  Setting leaks_;
  std::vector<std::unique_ptr<Setting>> settings_;
};

[[noreturn]] void run(const Scenario& scenario) {
  scenario();
  std::exit(::testing::Test::HasFailure() ? EXIT_FAILURE : EXIT_SUCCESS);
}

}  // namespace

void expect_passes(const Environment& environment, const Scenario& scenario) {
  const Settings settings(environment);
  EXPECT_EXIT(run(scenario), ::testing::ExitedWithCode(EXIT_SUCCESS), "");
}

void expect_aborts(const Environment& environment, const Scenario& scenario, const std::string& said) {
  const Settings settings(environment);
  EXPECT_EXIT(run(scenario), ::testing::KilledBySignal(SIGABRT), said);
}

}  // namespace ciranda::cuda::testing
