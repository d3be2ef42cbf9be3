// What a rank makes of messages from others that it has no use for, or that cannot be true. The others are played.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agree/process_sets.hpp"
#include "engine/engine.hpp"
#include "engine/played_rank.hpp"
#include "engine/watchdog.hpp"
#include "engine/world.hpp"
#include "text_matchers.hpp"
#include "transport/loopback_fabric.hpp"

namespace ciranda {
namespace {

using testing::impatient_config;
using testing::PlayedRank;
using testing::request;
using testing::Watchdog;

LoopbackOptions one_host_each() {
  LoopbackOptions options;
  options.with_arena = false;
  options.ring_bytes = 1 << 20;
  return options;
}

// Rank 0, of three, with a process set of ranks 0 and 1.
class StrangeMessages : public ::testing::Test {
 protected:
  // All three make the call; the two that are played say so.
  std::int64_t agree(Collective collective, std::vector<std::int64_t> arguments, const std::string& name) {
    Request r;
    r.is_cacheable = false;
    r.signature.collective = collective;
    r.signature.arguments = std::move(arguments);
    for (PlayedRank* rank : {&rank_1_, &rank_2_}) rank->say(0, 0, RequestMessage{name, r.signature, false});
    const auto operation = submit_request(*engine_, std::move(r));
    const Status status = engine_->wait(operation);
    EXPECT_TRUE(status.ok()) << status.message();
    return operation->value();
  }

  const Watchdog watchdog_{"strange messages"};
  LoopbackFabric fabric_{3, one_host_each()};
  std::unique_ptr<Engine> engine_ = Engine::create(fabric_.take_mesh(0), impatient_config());
  PlayedRank rank_1_{fabric_.take_mesh(1)};
  PlayedRank rank_2_{fabric_.take_mesh(2)};
};

// They are not kept for a set that might come: no set is ever given that id again.
TEST_F(StrangeMessages, ForASetThatIsGoneAreForgotten) {
  constexpr std::size_t kMoreThanARankKeeps = (1 << 20) + 1;
  const auto set = static_cast<std::uint32_t>(agree(Collective::kAddProcessSet, {0, 1}, "add_process_set [0, 1]"));
  agree(Collective::kRemoveProcessSet, {set}, "remove_process_set [" + std::to_string(set) + "]");
  std::vector<std::byte> late;
  append_frame(lane_id(set, 0), WaitingMessage{}, late);
  std::vector<std::byte> all_late;
  all_late.reserve(kMoreThanARankKeeps * late.size());
  for (std::size_t i = 0; i < kMoreThanARankKeeps; ++i) all_late.insert(all_late.end(), late.begin(), late.end());
  rank_1_.say(0, all_late);
  rank_1_.say(0, 0, PingMessage{});
  EXPECT_TRUE(rank_1_.hear<PongMessage>(0).has_value());
}

// Rank 1 of two calls an allgather, and is told by its coordinator that it contributes another number of rows than it
// does: to believe that would be to read, or to write, beyond its tensor.
void expect_refused(std::vector<std::vector<std::int64_t>> first_dims) {
  const Watchdog watchdog("a coordinator that lies");
  LoopbackFabric fabric(2, one_host_each());
  const auto engine = Engine::create(fabric.take_mesh(1), impatient_config());
  PlayedRank coordinator(fabric.take_mesh(0));
  std::vector<float> rows(3, 1);
  const auto operation =
      submit_request(*engine, request(Collective::kAllgather, "g", DataType::kFloat32, {3}, rows.data()));
  const auto reported = coordinator.hear<RequestMessage>(1);
  ASSERT_TRUE(reported.has_value());
  EXPECT_EQ(reported->name, "g");
  ExecuteItem item;
  item.cache_id = 0;
  item.is_defined_here = true;
  item.name = "g";
  item.first_dims = std::move(first_dims);
  coordinator.say(1, 0, LogMessage{{ExecuteEntry{{item}}}});
  const Status status = engine->wait(operation, nullptr, std::chrono::steady_clock::now() + std::chrono::seconds(20));
  EXPECT_EQ(status.kind(), ErrorKind::kInternal);
  EXPECT_TRUE(contains(status.message(), "first dimensions for allgather 'g' are not those of its ranks"));
}

TEST(StrangeLog, ThatForgesARanksOwnRowsIsRefused) {
  expect_refused({{2, 4}});
  expect_refused({{2, 2}});
  expect_refused({{3, 2}});
}

TEST(StrangeLog, WhoseRowsCannotBeIsRefused) {
  expect_refused({});
  expect_refused({{3}});
  expect_refused({{2, 3}, {2, 3}});
  expect_refused({{-1, 3}});
  expect_refused({{std::int64_t{1} << 60, 3}});
}

// To carry out the first and say that both are done would be a wrong result that nobody hears of.
TEST(StrangeLog, ThatJoinsWhatCannotBeOneIsRefused) {
  const Watchdog watchdog("a coordinator that joins what cannot be one");
  LoopbackFabric fabric(2, one_host_each());
  const auto engine = Engine::create(fabric.take_mesh(1), impatient_config());
  PlayedRank coordinator(fabric.take_mesh(0));
  std::vector<float> rows(3, 1);
  std::vector<float> sums(3, 1);
  const auto gathered =
      submit_request(*engine, request(Collective::kAllgather, "g", DataType::kFloat32, {3}, rows.data()));
  const auto summed =
      submit_request(*engine, request(Collective::kAllreduce, "s", DataType::kFloat32, {3}, sums.data()));
  ASSERT_TRUE(coordinator.hear<RequestMessage>(1).has_value());
  ASSERT_TRUE(coordinator.hear<RequestMessage>(1).has_value());
  ExecuteEntry both;
  for (const auto& [name, cache_id] : {std::pair{"g", 0U}, {"s", 1U}}) {
    ExecuteItem& item = both.items.emplace_back();
    item.cache_id = cache_id;
    item.is_defined_here = true;
    item.name = name;
  }
  both.items.front().first_dims = {{3, 3}};
  coordinator.say(1, 0, LogMessage{{both}});
  for (const auto& operation : {gathered, summed}) {
    const Status status = engine->wait(operation, nullptr, std::chrono::steady_clock::now() + std::chrono::seconds(20));
    EXPECT_EQ(status.kind(), ErrorKind::kInternal);
    EXPECT_TRUE(contains(status.message(), "allgather 'g' together with allreduce 's', which cannot be carried out"));
  }
}

}  // namespace
}  // namespace ciranda
