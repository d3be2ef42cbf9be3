// in_a_world: runs a function on n ranks, each a thread with a context of its own that it gets by ciranda_init().
#pragma once

#include <ciranda/ciranda.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "membership/store_server.hpp"

namespace ciranda::capi {

// A private file with the job's secret; removed at the end.
class SecretFile {
 public:
  explicit SecretFile(const std::string& digits) {
    const int fd = mkstemp(path_.data());  // only its owner may read it
    EXPECT_GE(fd, 0);
    EXPECT_EQ(write(fd, digits.data(), digits.size()), static_cast<ssize_t>(digits.size()));
    close(fd);
  }
  SecretFile(const SecretFile&) = delete;
  SecretFile& operator=(const SecretFile&) = delete;
  ~SecretFile() { unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/ciranda_capi_test_XXXXXX";
};

using Settings = std::vector<std::pair<std::string, std::string>>;

inline ciranda_context* join(const Settings& settings) {
  std::vector<ciranda_setting> rows;
  for (const auto& [name, value] : settings) rows.push_back({name.c_str(), value.c_str()});
  ciranda_options options = CIRANDA_OPTIONS_INIT;
  options.settings = rows.data();
  options.settings_count = rows.size();
  options.epoch = 1;
  ciranda_context* world = nullptr;
  char message[512];
  EXPECT_EQ(ciranda_init(&options, &world, message, sizeof(message)), CIRANDA_OK) << message;
  return world;
}

// The store of a job "job", whose secret is in a SecretFile of fives.
inline std::unique_ptr<StoreServer> start_store(int n_ranks) {
  StoreServerOptions options;
  options.bind = {"127.0.0.1"};
  options.secret.fill(std::byte{0x55});
  options.job = "job";
  options.size = n_ranks;
  auto started = StoreServer::start(options);
  EXPECT_TRUE(started.ok()) << started.status().message();
  return std::move(started).value();
}

// REQUIRES: on_rank leaves the context alone or shuts it down and sets it to null.
inline void in_a_world(int n_ranks, const std::function<void(ciranda_context*&)>& on_rank) {
  const SecretFile file(std::string(64, '5'));
  const auto store = start_store(n_ranks);
  const std::string size = std::to_string(n_ranks);
  const std::string address = "127.0.0.1:" + std::to_string(store->port());
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < n_ranks; ++rank) {
    ranks.emplace_back([&, rank] {
      ciranda_context* world = join({{"CIRANDA_RANK", std::to_string(rank)},
                                     {"CIRANDA_SIZE", size},
                                     {"CIRANDA_STORE", address},
                                     {"CIRANDA_SECRET_FILE", file.path()},
                                     {"CIRANDA_JOB", "job"}});
      if (world != nullptr) on_rank(world);
      ciranda_shutdown(world);
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace ciranda::capi
