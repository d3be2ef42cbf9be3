// The listener gets what loggers write, as JSON, until it is closed; what it cannot take goes to standard error.
#include "base/log_listener.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/log.hpp"

namespace ciranda {
namespace {

class Listening : public ::testing::Test {
 protected:
  Listening() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
    end_ = UniqueFd(ends[0]);
    log_listener().open(UniqueFd(ends[1]));
  }
  ~Listening() override { log_listener().close(); }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;

  // "" at the end.
  std::string next() {
    std::array<char, 1024> line{};
    const auto n_bytes = ::recv(end_.get(), line.data(), line.size(), 0);
    return {line.data(), static_cast<std::size_t>(std::max<ssize_t>(n_bytes, 0))};
  }
  template <typename Run>
  static std::string error_of(const Run& run) {
    ::testing::internal::CaptureStderr();
    run();
    return ::testing::internal::GetCapturedStderr();
  }

  const Logger logger_{1, LogLevel::kTrace};

 private:
  UniqueFd end_;
};

TEST_F(Listening, GetsEachLine) {
  EXPECT_EQ(error_of([&] { logger_.info([] { return std::string("one"); }); }), "");
  EXPECT_NE(next().find(R"("level":"info","rank":1,)"), std::string::npos);
  EXPECT_EQ(error_of([&] { logger_.warning("two"); }), "ciranda: warning: [rank 1] two\n") << "also where it is read";
  EXPECT_NE(next().find(R"("message":"two"})"), std::string::npos);
  log_listener().close();
  EXPECT_EQ(error_of([&] { logger_.info([] { return std::string("three"); }); }), "ciranda: info: [rank 1] three\n");
  EXPECT_EQ(next(), "") << "the end";
}

TEST_F(Listening, NobodyWaitsForIt) {
  const std::string text(2000, 'x');
  std::string error;
  for (int i = 0; i < 10'000 && error.empty(); ++i) {
    error = error_of([&] { logger_.info([&] { return text; }); });
  }
  EXPECT_EQ(error, "ciranda: info: [rank 1] " + text + "\n") << "it has no room for more";
}

TEST_F(Listening, HearsNoChild) {
  const pid_t child = ::fork();
  if (child == 0) _exit(log_listener().take("x") ? 1 : 0);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(Listening, EndsForAllEvenIfAChildHasTheSocket) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    _exit(0);
  }
  logger_.info([] { return std::string("last"); });
  log_listener().close();
  EXPECT_NE(next().find(R"("message":"last"})"), std::string::npos);
  EXPECT_EQ(next(), "") << "the end";
  ::kill(child, SIGKILL);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
}

}  // namespace
}  // namespace ciranda
