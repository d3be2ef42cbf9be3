// Status and Result: values that say what the caller can do.
#include "base/status.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>
#include <utility>

namespace ciranda {
namespace {

TEST(Status, IsOkByDefault) {
  EXPECT_TRUE(Status().ok());
  EXPECT_TRUE(Status::ok_status().ok());
  EXPECT_EQ(Status().kind(), ErrorKind::kOk);
  EXPECT_EQ(Status().message(), "");
}

TEST(Status, KeepsKindAndMessage) {
  struct Row {
    Status status;
    ErrorKind kind;
    std::string name;
  };
  const Row rows[] = {
      {Status::invalid_argument("why"), ErrorKind::kInvalidArgument, "InvalidArgument"},
      {Status::mismatch("why"), ErrorKind::kMismatch, "Mismatch"},
      {Status::ranks_lost("why"), ErrorKind::kRanksLost, "RanksLost"},
      {Status::timeout("why"), ErrorKind::kTimeout, "Timeout"},
      {Status::aborted("why"), ErrorKind::kAborted, "Aborted"},
      {Status::internal("why"), ErrorKind::kInternal, "Internal"},
  };
  for (const Row& row : rows) {
    EXPECT_FALSE(row.status.ok()) << row.name;
    EXPECT_EQ(row.status.kind(), row.kind) << row.name;
    EXPECT_EQ(row.status.message(), "why") << row.name;
    EXPECT_EQ(to_string(row.kind), row.name);
  }
  EXPECT_EQ(to_string(ErrorKind::kOk), "Ok");
  EXPECT_EQ(to_string(static_cast<ErrorKind>(99)), "Unknown");
}

TEST(Status, SpeaksForErrno) {
  errno = ENOENT;
  const Status status = Status::from_errno("open 'x'");
  EXPECT_EQ(status.kind(), ErrorKind::kInternal);
  EXPECT_EQ(status.message(), "open 'x': No such file or directory");
}

TEST(Result, HoldsAValueOrAReason) {
  Result<std::string> good(std::string("value"));
  EXPECT_TRUE(good.ok());
  EXPECT_TRUE(good.status().ok());
  EXPECT_EQ(good.value(), "value");
  const Result<std::string> bad(Status::timeout("late"));
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().kind(), ErrorKind::kTimeout);
}

TEST(Result, GivesUpWhatCannotBeCopied) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(7));
  const std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 7);
}

}  // namespace
}  // namespace ciranda
