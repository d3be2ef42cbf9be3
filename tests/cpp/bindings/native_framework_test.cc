// A framework in small: graphs of calls that depend on each other, begun by several threads in another order on each
// rank, whose nodes run wherever their inputs are ready. For ThreadSanitizer, above all.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <ciranda/native/call.hpp>
#include <cstddef>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "capi/world_of_threads.hpp"

namespace ciranda::native {
namespace {

constexpr int kRanks = 2;
constexpr int kChains = 60;
constexpr int kChainLength = 3;  // calls in a chain, each of what the one before gave
constexpr int kThreads = 3;

// Runs chains: tensor = sum over ranks of (tensor + 1), kChainLength times.
class Framework : public std::enable_shared_from_this<Framework> {
 public:
  Framework(ciranda_context* world, bool directly)
      : world_(world), flags_(directly ? CIRANDA_REQUEST_DIRECT_CALLBACK : 0) {}

  void run(unsigned seed) {
    std::vector<int> order(kChains);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::minstd_rand(seed));
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = thread; i < kChains; i += kThreads)
          begin(order[static_cast<std::size_t>(i)], 0, std::vector<float>(7));
      });
    }
    for (std::thread& each : threads) each.join();
    for (int n = n_open_.load(); n != 0; n = n_open_.load()) n_open_.wait(n);
  }

  int n_wrong() const { return n_wrong_; }

 private:
  struct Node {
    Node(std::shared_ptr<Framework> of, int in_chain, int at, std::vector<float> with)
        : framework(std::move(of)), chain(in_chain), place(at), values(std::move(with)) {}

    std::shared_ptr<Framework> framework;
    int chain;
    int place;
    std::vector<float> values;

    void end(const Outcome& outcome) { framework->go_on(*this, outcome.status == CIRANDA_OK); }
  };

  void begin(int chain, int place, std::vector<float> values) {
    for (float& value : values) value += 1;
    const std::string name = "chain." + std::to_string(chain) + "." + std::to_string(place);
    auto node = std::make_unique<Node>(shared_from_this(), chain, place, std::move(values));
    const auto n = static_cast<std::int64_t>(node->values.size());
    const ciranda_tensor tensor{
        node->values.data(), node->values.data(), &n, 1, CIRANDA_FLOAT32, nullptr, 0, 0, 0, nullptr};
    ciranda_request request = CIRANDA_REQUEST_INIT;
    request.name = name.c_str();
    request.collective = CIRANDA_ALLREDUCE;
    request.op = CIRANDA_SUM;
    request.flags |= flags_;
    request.tensors = &tensor;
    request.tensors_count = 1;
    submit(world_, std::move(node), request);
  }

  void go_on(Node& node, bool is_well) {
    const float expected = static_cast<float>((2 << (node.place + 1)) - 2);  // x -> 2 (x + 1)
    for (const float value : node.values) n_wrong_ += is_well && value == expected ? 0 : 1;
    if (node.place + 1 < kChainLength) return begin(node.chain, node.place + 1, std::move(node.values));
    if (n_open_.fetch_sub(1) == 1) n_open_.notify_one();
  }

  ciranda_context* world_;
  decltype(ciranda_request::flags) flags_;
  std::atomic<int> n_open_{kChains};
  std::atomic<int> n_wrong_{0};
};

class NativeFramework : public testing::TestWithParam<bool> {};

TEST_P(NativeFramework, GraphsInAnyOrder) {
  capi::in_a_world(kRanks, [](ciranda_context* world) {
    for (unsigned step = 0; step < 3; ++step) {
      const auto framework = std::make_shared<Framework>(world, GetParam());
      framework->run(static_cast<unsigned>(ciranda_rank(world)) + 10 * step);
      EXPECT_EQ(framework->n_wrong(), 0);
    }
  });
  while (live_calls() > 0) std::this_thread::yield();  // the last of a call happens after who waits for it goes on
}

INSTANTIATE_TEST_SUITE_P(Callbacks, NativeFramework, testing::Bool(),
                         [](const auto& about) { return about.param ? "Direct" : "OnThreadsOfTheirOwn"; });

}  // namespace
}  // namespace ciranda::native
