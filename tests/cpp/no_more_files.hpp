// NoMoreFiles: while it lives, this process may open no more files.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <vector>

#include "base/unique_fd.hpp"

namespace ciranda {

class NoMoreFiles {
 public:
  NoMoreFiles() {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit few{256, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    while (true) {
      UniqueFd next(open("/dev/null", O_RDONLY | O_CLOEXEC));
      if (!next.valid()) break;
      all_.push_back(std::move(next));
    }
  }
  ~NoMoreFiles() { EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before_), 0); }
  NoMoreFiles(const NoMoreFiles&) = delete;
  NoMoreFiles& operator=(const NoMoreFiles&) = delete;

 private:
  rlimit before_{};
  std::vector<UniqueFd> all_;
};

}  // namespace ciranda
