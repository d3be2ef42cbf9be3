// in_processes: runs a function on n ranks, each a process: for libraries that keep one world in a process.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "capi/world_of_threads.hpp"

namespace ciranda::capi {

// Where a rank finds the others: the settings of ciranda_init(), as join() takes them.
using OnRank = std::function<void(int rank, const Settings& settings)>;

// The processes come first, when there are no threads yet; each then waits to be told where the store is.
class RankProcess {
 public:
  RankProcess(int rank, int n_ranks, const std::string& secret_file, const OnRank& on_rank) {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe(ends.data()), 0);
    pid_ = fork();
    EXPECT_GE(pid_, 0);
    to_ = ends[1];
    if (pid_ != 0) {
      close(ends[0]);
      return;
    }
    alarm(kLongestLifeSeconds);
    close(ends[1]);
    std::uint16_t port = 0;
    if (read(ends[0], &port, sizeof(port)) != sizeof(port)) std::_Exit(2);
    on_rank(rank, {{"CIRANDA_RANK", std::to_string(rank)},
                   {"CIRANDA_SIZE", std::to_string(n_ranks)},
                   {"CIRANDA_STORE", "127.0.0.1:" + std::to_string(port)},
                   {"CIRANDA_SECRET_FILE", secret_file},
                   {"CIRANDA_JOB", "job"}});
    std::fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;
  ~RankProcess() {
    close(to_);
    int status = -1;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    EXPECT_EQ(status, 0) << "what a rank has printed says why";
  }

  void tell(std::uint16_t port) const {
    EXPECT_EQ(write(to_, &port, sizeof(port)), static_cast<ssize_t>(sizeof(port)));
  }

 private:
  static constexpr unsigned kLongestLifeSeconds = 120;

  pid_t pid_ = -1;
  int to_ = -1;
};

inline void in_processes(int n_ranks, const OnRank& on_rank) {
  const SecretFile file(std::string(64, '5'));
  std::vector<std::unique_ptr<RankProcess>> ranks;
  for (int rank = 0; rank < n_ranks; ++rank) {
    ranks.push_back(std::make_unique<RankProcess>(rank, n_ranks, file.path(), on_rank));
  }
  const auto store = start_store(n_ranks);
  for (const auto& rank : ranks) rank->tell(store->port());
  ranks.clear();  // waits for them
}

}  // namespace ciranda::capi
