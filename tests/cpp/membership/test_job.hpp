// TestJob: a rendezvous store and the options by which ranks join it, for tests. Ranks are threads, or processes of
// their own (rank_process.hpp).
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "membership/bootstrap.hpp"
#include "membership/store_server.hpp"
#include "transport/mesh_conformance.hpp"

namespace ciranda {

using Tweak = std::function<void(BootstrapOptions&)>;
using Joined = std::vector<Result<std::unique_ptr<Mesh>>>;

constexpr const char* kTestJobName = "job";
constexpr const char* kTestHost = "testhost";
constexpr std::size_t kTestSlotBytes = 65536;

inline Secret test_secret() {
  Secret secret{};
  secret.fill(std::byte{0x5a});
  return secret;
}

// How a rank joins the job whose store is there.
inline BootstrapOptions test_options(int rank, int size, const std::string& store) {
  BootstrapOptions options;
  options.rank = rank;
  options.size = size;
  options.store = {store};
  options.secret = test_secret();
  options.job = kTestJobName;
  options.host = kTestHost;
  options.slot_bytes = kTestSlotBytes;
  return options;
}

class TestJob {
 public:
  explicit TestJob(int size, const std::string& name = kTestJobName, const std::string& bind = "127.0.0.1")
      : size_(size), name_(name), bind_(bind) {
    StoreServerOptions options;
    options.bind = {bind};
    options.secret = secret_;
    options.job = name;
    options.size = size;
    options.on_refused = [this](const std::string& what) { note(refused_, what); };
    auto started = StoreServer::start(std::move(options));
    EXPECT_TRUE(started.ok()) << started.status().message();
    store_ = std::move(started).value();
  }

  std::string store_address() const {
    const std::string port = ":" + std::to_string(store_->port());
    return bind_.find(':') == std::string::npos ? bind_ + port : "[" + bind_ + "]" + port;
  }

  BootstrapOptions options(int rank) {
    BootstrapOptions options = test_options(rank, size_, store_address());
    options.job = name_;
    options.warn = [this](const std::string& what) { note(warnings_, what); };
    return options;
  }

  // All ranks at once, each on a thread.
  Joined join(const Tweak& tweak = {}) {
    std::vector<std::unique_ptr<Result<std::unique_ptr<Mesh>>>> results(static_cast<std::size_t>(size_));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size_; ++rank) {
      threads.emplace_back([this, rank, &tweak, &results] {
        BootstrapOptions mine = options(rank);
        if (tweak) {
          tweak(mine);
        }
        results[static_cast<std::size_t>(rank)] = std::make_unique<Result<std::unique_ptr<Mesh>>>(join_world(mine));
      });
    }
    Joined joined;
    for (int rank = 0; rank < size_; ++rank) {
      threads[static_cast<std::size_t>(rank)].join();
      joined.push_back(std::move(*results[static_cast<std::size_t>(rank)]));
    }
    return joined;
  }

  Meshes join_well(const Tweak& tweak = {}) {
    Meshes meshes;
    for (auto& each : join(tweak)) {
      EXPECT_TRUE(each.ok()) << each.status().message();
      if (each.ok()) {
        meshes.push_back(std::move(each).value());
      }
    }
    return meshes;
  }

  std::vector<std::string> warnings() { return read(warnings_); }
  std::vector<std::string> refused() { return read(refused_); }
  // The store notices in its own time.
  std::string wait_for_refusal() {
    std::unique_lock lock(mutex_);
    const bool came = noted_.wait_for(lock, std::chrono::seconds(10), [this] { return !refused_.empty(); });
    return came ? refused_.front() : "nobody was refused";
  }
  StoreServer& store() { return *store_; }
  const Secret& secret() const { return secret_; }

 private:
  void note(std::vector<std::string>& where, const std::string& what) {
    const std::lock_guard lock(mutex_);
    where.push_back(what);
    noted_.notify_all();
  }
  std::vector<std::string> read(const std::vector<std::string>& where) {
    const std::lock_guard lock(mutex_);
    return where;
  }

  int size_;
  std::string name_;
  std::string bind_;
  Secret secret_ = test_secret();
  std::mutex mutex_;
  std::condition_variable noted_;
  std::vector<std::string> warnings_;
  std::vector<std::string> refused_;
  std::unique_ptr<StoreServer> store_;
};

}  // namespace ciranda
