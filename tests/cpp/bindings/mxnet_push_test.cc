// Collectives in the engine of a fake MXNet: what is held while they are under way, and is gone when they have ended.
// For the sanitizers above all. One rank pushes; the other makes the same calls by the C ABI.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <barrier>
#include <ciranda/native/call.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/fake_mxnet.hpp"
#include "bindings/mxnet/failed_results.hpp"
#include "bindings/mxnet/held.hpp"
#include "bindings/mxnet/last_error.hpp"
#include "bindings/mxnet/lent.hpp"
#include "bindings/mxnet/push.hpp"
#include "capi/world_of_threads.hpp"

namespace ciranda::mxnet {
namespace {

constexpr std::size_t kLength = 5;

Asked sum(const std::string& name) { return {name, CIRANDA_ALLREDUCE, CIRANDA_SUM, -1, 0, 0, false, false, 1.0, 1.0}; }

// "", or what is wrong with the call.
std::string push_sums(const std::string& name, std::vector<ArrayHandle> inputs, std::vector<ArrayHandle> outputs) {
  auto running = std::make_unique<Running>(sum(name));
  std::string report;
  std::string problem = running->prepare(inputs.data(), outputs.data(), inputs.size(), nullptr);
  return problem.empty() ? push(std::move(running), &report) : problem;
}

// In place.
std::string push_sum(const std::string& name, const Array& array) {
  return push_sums(name, {array.get()}, {array.get()});
}

// What the other rank makes of the same call.
ciranda_status plain_sum(ciranda_context* world, const std::string& name, std::vector<float>& values) {
  const auto n = static_cast<std::int64_t>(values.size());
  const ciranda_tensor tensor{values.data(), values.data(), &n, 1, CIRANDA_FLOAT32, nullptr, 0, 0, 0, nullptr};
  ciranda_request request = CIRANDA_REQUEST_INIT;
  request.name = name.c_str();
  request.collective = CIRANDA_ALLREDUCE;
  request.op = CIRANDA_SUM;
  request.tensors = &tensor;
  request.tensors_count = 1;
  ciranda_operation* operation = nullptr;
  const ciranda_status status = ciranda_run(world, &request, &operation);
  ciranda_operation_release(operation);
  return status;
}

// Two ranks: one pushes, as the rank whose context is the current one; the other does not.
void with_a_peer(const std::function<void(ciranda_context*&)>& pushes,
                 const std::function<void(ciranda_context*&)>& peer) {
  ASSERT_EQ(find_mx_api(dlopen(nullptr, RTLD_LAZY), "1.9.1"), "");
  std::barrier<> both(2);
  capi::in_a_world(2, [&](ciranda_context*& world) {
    both.arrive_and_wait();
    ciranda_context* const current = ciranda_current();
    ciranda_context_release(current);
    both.arrive_and_wait();
    (current == world ? pushes : peer)(world);
  });
  fake::wait_for_all();
  while (native::live_calls() > 0) std::this_thread::yield();  // the last of a call happens after MXNet has heard of it
  EXPECT_EQ(fake::n_failed_elsewhere(), 0);
  EXPECT_EQ(fake::live_memories(), 0);
  EXPECT_EQ(fake::live_handles(), 0);
}

std::string numbered(const char* what, int index) { return std::string(what) + "." + std::to_string(index); }

TEST(MxnetPush, ArraysSayWhatComesAfterWhat) {
  constexpr int kArrays = 20;
  constexpr int kTimes = 4;
  with_a_peer(
      [&](ciranda_context*&) {
        std::vector<Array> arrays;
        for (int i = 0; i < kArrays; ++i) arrays.push_back(fake::make(std::vector<float>(kLength, 1.0F)));
        for (int time = 0; time < kTimes; ++time) {
          for (int i = kArrays - 1; i >= 0; --i) {
            const Array& array = arrays[static_cast<std::size_t>(i)];
            fake::push_add(array, 1);
            EXPECT_EQ(push_sum(numbered("sum", i), array), "");  // by a name that may be under way
          }
        }
        for (const Array& array : arrays) {
          const fake::Read found = fake::read(array);
          EXPECT_EQ(found.error, "");
          EXPECT_EQ(found.values, std::vector<float>(kLength, 1 + 2 * kTimes));
        }
      },
      [&](ciranda_context*& world) {
        for (int time = 0; time < kTimes; ++time) {
          for (int i = 0; i < kArrays; ++i) {
            std::vector<float> values(kLength, 1.0F);
            EXPECT_EQ(plain_sum(world, numbered("sum", i), values), CIRANDA_OK);
          }
        }
      });
}

TEST(MxnetPush, FailuresAreThoseOfTheArrays) {
  with_a_peer(
      [](ciranda_context*&) {
        const Array bad = fake::make(std::vector<float>(kLength));
        const Array good = fake::make(std::vector<float>(kLength, 2.0F));
        EXPECT_EQ(push_sum("shapes", bad), "");
        fake::push_add(bad, 1);
        EXPECT_EQ(push_sum("after", bad), "");  // left out by MXNet: the peer is told
        EXPECT_EQ(push_sum("good", good), "");
        const std::string error = fake::read(bad).error;
        EXPECT_EQ(error.find("CirandaMismatch: "), 0U) << error;
        EXPECT_NE(error.find("'shapes'"), std::string::npos) << error;
        EXPECT_EQ(fake::read(good).values, std::vector<float>(kLength, 3.0F));
        EXPECT_EQ(last_error().get().first, CIRANDA_MISMATCH);
      },
      [](ciranda_context*& world) {
        std::vector<float> more(kLength + 1);
        std::vector<float> values(kLength, 1.0F);
        EXPECT_EQ(plain_sum(world, "shapes", more), CIRANDA_MISMATCH);
        EXPECT_EQ(plain_sum(world, "after", values), CIRANDA_MISMATCH);
        EXPECT_EQ(plain_sum(world, "good", values), CIRANDA_OK);
      });
}

// What an array that nothing writes has failed with; raised() has been told of what the fake raises.
std::string failure_of(const Array& array) {
  const std::string error = fake::raise(array);
  if (!error.empty()) failed_results().raised(error);
  return failed_results().message_of(array.get());
}

TEST(MxnetPush, ArraysCountAsFailedUntilTheyAreWritten) {
  with_a_peer(
      [](ciranda_context*&) {
        const Array input = fake::make(std::vector<float>(kLength, 1.0F));
        const Array output = fake::make(std::vector<float>(kLength));
        const Array chained = fake::make(std::vector<float>(kLength));
        const Array one = fake::make(std::vector<float>(kLength, 1.0F));
        const Array other = fake::make(std::vector<float>(kLength, 1.0F));
        EXPECT_EQ(push_sums("shapes", {input.get()}, {output.get()}), "");
        EXPECT_EQ(push_sums("chained", {output.get()}, {chained.get()}), "");
        EXPECT_EQ(push_sums("in place", {one.get(), other.get()}, {one.get(), other.get()}), "");
        fake::push_add(other, 1);
        fake::wait_for_all();  // what is left out is so as long as nothing has been raised
        for (int time = 0; time < 2; ++time) {
          for (const Array* each : {&output, &chained}) {
            EXPECT_NE(failure_of(*each).find("'shapes'"), std::string::npos) << failure_of(*each);
          }
          for (const Array* each : {&one, &other}) {
            EXPECT_NE(failure_of(*each).find("'in place'"), std::string::npos) << failure_of(*each);
          }
          EXPECT_EQ(failure_of(input), "");
        }
        EXPECT_NE(fake::read(output).values, fake::read(output).values);  // not a number
        EXPECT_EQ(fake::read(other).values, std::vector<float>(kLength, 1.0F));
        for (const Array* each : {&output, &chained, &one, &other}) {
          fake::push_add(*each, 1);
          EXPECT_EQ(failure_of(*each), "");
        }
      },
      [](ciranda_context*& world) {
        std::vector<float> more(kLength + 1);
        for (const char* const name : {"shapes", "chained", "in place"}) {
          EXPECT_EQ(plain_sum(world, name, more), CIRANDA_MISMATCH);
        }
      });
}

TEST(MxnetFailedResults, WhatHasBeenRaisedOrIsGone) {
  ASSERT_EQ(find_mx_api(dlopen(nullptr, RTLD_LAZY), "1.9.1"), "");
  FailedResults results;
  Array array = fake::make({1.0F});
  const Array other = fake::make({1.0F});
  const auto write = [](const Array& to) {
    fake::push_add(to, 1);
    (void)fake::read(to);
  };
  results.add_left_out(array.get(), "one");
  results.add_left_out(other.get(), "other");
  write(array);  // as MXNet leaves it out, and counts
  write(other);
  results.raised("Traceback: one");
  EXPECT_EQ(results.message_of(array.get()), "one");
  write(array);
  EXPECT_EQ(results.message_of(array.get()), "");
  results.add(array.get(), "one");
  results.raised("Traceback: one");
  write(array);  // as the operation ends
  EXPECT_EQ(results.message_of(array.get()), "one");
  write(array);
  results.raised("");
  EXPECT_EQ(results.message_of(array.get()), "");
  EXPECT_EQ(results.message_of(other.get()), "other");
  const std::size_t many = 200;
  for (std::size_t i = 0; i < many; ++i) results.add_raised(fake::make({1.0F}).get(), "gone");
  EXPECT_EQ(results.message_of(other.get()), "other");
  const Array anew = fake::make({1.0F});  // perhaps where another was
  EXPECT_EQ(results.message_of(anew.get()), "");
  results.add_raised(array.get(), "again");
  EXPECT_EQ(results.message_of(array.get()), "again");
  array.reset();
  results.raised("");
  // A release of MXNet whose arrays may be laid out otherwise.
  ASSERT_EQ(find_mx_api(dlopen(nullptr, RTLD_LAZY), "2.0.0"), "");
  results.add_raised(other.get(), "unknown");
  EXPECT_EQ(results.message_of(anew.get()), "");
  ASSERT_EQ(find_mx_api(dlopen(nullptr, RTLD_LAZY), "1.9.1"), "");
  EXPECT_EQ(results.message_of(other.get()), "other");
  fake::wait_for_all();
}

TEST(MxnetPush, WhatIsUnderWayEndsWithTheWorld) {
  constexpr int kCalls = 200;
  std::barrier<> all_pushed(2);
  with_a_peer(
      [&](ciranda_context*& world) {
        std::vector<Array> arrays;
        for (int i = 0; i < kCalls; ++i) {
          arrays.push_back(fake::make(std::vector<float>(kLength)));
          EXPECT_EQ(push_sum(numbered("alone", i), arrays.back()), "");
          if (i % 2 == 0) arrays.back().reset();
        }
        ciranda_shutdown(std::exchange(world, nullptr));
        for (int i = 1; i < kCalls; i += 2) {
          const std::string error = fake::read(arrays[static_cast<std::size_t>(i)]).error;
          EXPECT_EQ(error.find("Ciranda"), 0U) << error;
        }
        all_pushed.arrive_and_wait();
      },
      [&](ciranda_context*&) { all_pushed.arrive_and_wait(); });
}

TEST(MxnetPush, NamesAndWorldsAreCheckedByTheCall) {
  ASSERT_EQ(find_mx_api(dlopen(nullptr, RTLD_LAZY), "1.9.1"), "");
  {
    const Array array = fake::make(std::vector<float>(kLength));
    EXPECT_EQ(push_sum("no world", array), native::kNotInitialized);
  }
  with_a_peer(
      [](ciranda_context*&) {
        const Array one = fake::make(std::vector<float>(kLength));
        const Array other = fake::make(std::vector<float>(kLength));
        EXPECT_NE(push_sum("", one).find("must not be empty"), std::string::npos);
        EXPECT_EQ(push_sum("used", one), "");
        EXPECT_NE(push_sum("used", other).find("the name is in use"), std::string::npos);
        EXPECT_EQ(push_sum("go", other), "");
        (void)fake::read(one);
      },
      [](ciranda_context*& world) {
        std::vector<float> values(kLength);
        EXPECT_EQ(plain_sum(world, "go", values), CIRANDA_OK);  // "used" is still under way there
        EXPECT_EQ(plain_sum(world, "used", values), CIRANDA_OK);
      });
}

TEST(MxnetHeld, NothingWritesWhatIsHeld) {
  ASSERT_EQ(find_mx_api(dlopen(nullptr, RTLD_LAZY), "1.9.1"), "");
  {
    const Array one = fake::make(std::vector<float>(kLength, 1.0F));
    const Array other = fake::make(std::vector<float>(kLength, 2.0F));
    const std::vector<ArrayHandle> arrays{one.get(), other.get(), one.get()};
    fake::push_add(one, 1);
    std::string problem;
    std::unique_ptr<Held> held = Held::take(arrays, problem);
    ASSERT_NE(held, nullptr) << problem;
    fake::push_add(one, 1);
    ASSERT_EQ(held->data().size(), 3U);
    EXPECT_EQ(held->data()[0], held->data()[2]);
    EXPECT_EQ(*static_cast<const float*>(held->data()[0]), 2.0F);
    EXPECT_EQ(*static_cast<const float*>(held->data()[1]), 2.0F);
    held.reset();
    EXPECT_EQ(fake::read(one).values, std::vector<float>(kLength, 3.0F));
    fake::fail(other, "it has failed");
    EXPECT_EQ(Held::take(arrays, problem), nullptr);
    EXPECT_EQ(problem, "");
  }
  fake::wait_for_all();
  EXPECT_EQ(fake::live_memories(), 0);
  EXPECT_EQ(fake::live_handles(), 0);
}

// What oneDNN has laid out in its own way is read from a copy, and written to where it lies.
TEST(MxnetPush, LayoutsOfOneDnn) {
  fake::n_reordered() = 0;
  with_a_peer(
      [](ciranda_context*&) {
        const Array read = fake::make(std::vector<float>(kLength, 1.0F));
        const Array written = fake::make(std::vector<float>(kLength));
        fake::lay_out_otherwise(read);
        fake::lay_out_otherwise(written);
        auto running = std::make_unique<Running>(sum("layouts"));
        ArrayHandle input = read.get();
        ArrayHandle output = written.get();
        std::string report;
        ASSERT_EQ(running->prepare(&input, &output, 1, nullptr), "");
        ASSERT_EQ(push(std::move(running), &report), "");
        EXPECT_EQ(fake::read(written).values, std::vector<float>(kLength, 3.0F));
        EXPECT_EQ(fake::read(read).values, std::vector<float>(kLength, -1.0F));  // as it was, which is by its negatives
        EXPECT_EQ(fake::n_reordered(), 2);
      },
      [](ciranda_context*& world) {
        std::vector<float> values(kLength, 2.0F);
        EXPECT_EQ(plain_sum(world, "layouts", values), CIRANDA_OK);
      });
}

TEST(MxnetLent, MemoryIsGivenBackOnAnyThread) {
  ASSERT_EQ(find_mx_api(dlopen(nullptr, RTLD_LAZY), "1.9.1"), "");
  std::vector<float> values(kLength);
  const std::int64_t n = kLength;
  Array array = lend(values.data(), {&n, 1}, CIRANDA_FLOAT32, &values);
  ASSERT_NE(array, nullptr);
  Array other = share(array.get());
  void* data = nullptr;
  EXPECT_EQ(mx().NDArrayGetData(other.get(), &data), 0);
  EXPECT_EQ(data, values.data());
  EXPECT_EQ(lend(values.data(), {&n, 1}, CIRANDA_COMPLEX64, &values), nullptr);  // MXNet has none
  EXPECT_EQ(lend(values.data(), {}, CIRANDA_FLOAT32, &values), nullptr);         // as the fake refuses it
  array.reset();
  std::vector<void*> owners(3);
  EXPECT_EQ(fetch_given_back(owners), 0U);
  std::thread([&other] { other.reset(); }).join();
  EXPECT_EQ(fetch_given_back(owners), 1U);
  EXPECT_EQ(owners.front(), &values);
  EXPECT_EQ(fetch_given_back(owners), 0U);
  EXPECT_EQ(fake::live_memories(), 0);
}

}  // namespace
}  // namespace ciranda::mxnet
