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
#include "bindings/mxnet/held.hpp"
#include "bindings/mxnet/last_error.hpp"
#include "bindings/mxnet/lent.hpp"
#include "bindings/mxnet/push.hpp"
#include "capi/circle_of_threads.hpp"

namespace ciranda::mxnet {
namespace {

constexpr std::size_t kLength = 5;

Asked sum(const std::string& name) { return {name, CIRANDA_ALLREDUCE, CIRANDA_SUM, -1, 0, 0, false, false, 1.0, 1.0}; }

// In place. "", or what is wrong with the call.
std::string push_sum(const std::string& name, const Array& array) {
  auto running = std::make_unique<Running>(sum(name));
  ArrayHandle handle = array.get();
  std::string report;
  std::string problem = running->prepare(&handle, &handle, 1, nullptr);
  return problem.empty() ? push(std::move(running), &report) : problem;
}

// What the other rank makes of the same call.
ciranda_status plain_sum(ciranda_context* circle, const std::string& name, std::vector<float>& values) {
  const auto n = static_cast<std::int64_t>(values.size());
  const ciranda_tensor tensor{values.data(), values.data(), &n, 1, CIRANDA_FLOAT32, nullptr, 0};
  ciranda_request request = CIRANDA_REQUEST_INIT;
  request.name = name.c_str();
  request.collective = CIRANDA_ALLREDUCE;
  request.op = CIRANDA_SUM;
  request.tensors = &tensor;
  request.tensors_count = 1;
  ciranda_operation* operation = nullptr;
  const ciranda_status status = ciranda_run(circle, &request, &operation);
  ciranda_operation_release(operation);
  return status;
}

// Two ranks: one pushes, as the rank whose context is the current one; the other does not.
void with_a_peer(const std::function<void(ciranda_context*&)>& pushes,
                 const std::function<void(ciranda_context*&)>& peer) {
  ASSERT_EQ(find_mx_api(dlopen(nullptr, RTLD_LAZY), "of the test"), "");
  std::barrier<> both(2);
  capi::in_a_circle(2, [&](ciranda_context*& circle) {
    both.arrive_and_wait();
    ciranda_context* const current = ciranda_current();
    ciranda_context_release(current);
    both.arrive_and_wait();
    (current == circle ? pushes : peer)(circle);
  });
  fake::wait_for_all();
  while (native::live_calls() > 0) std::this_thread::yield();  // the last of a call happens after MXNet has heard of it
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
      [&](ciranda_context*& circle) {
        for (int time = 0; time < kTimes; ++time) {
          for (int i = 0; i < kArrays; ++i) {
            std::vector<float> values(kLength, 1.0F);
            EXPECT_EQ(plain_sum(circle, numbered("sum", i), values), CIRANDA_OK);
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
      [](ciranda_context*& circle) {
        std::vector<float> more(kLength + 1);
        std::vector<float> values(kLength, 1.0F);
        EXPECT_EQ(plain_sum(circle, "shapes", more), CIRANDA_MISMATCH);
        EXPECT_EQ(plain_sum(circle, "after", values), CIRANDA_MISMATCH);
        EXPECT_EQ(plain_sum(circle, "good", values), CIRANDA_OK);
      });
}

TEST(MxnetPush, WhatIsUnderWayEndsWithTheCircle) {
  constexpr int kCalls = 200;
  std::barrier<> all_pushed(2);
  with_a_peer(
      [&](ciranda_context*& circle) {
        std::vector<Array> arrays;
        for (int i = 0; i < kCalls; ++i) {
          arrays.push_back(fake::make(std::vector<float>(kLength)));
          EXPECT_EQ(push_sum(numbered("alone", i), arrays.back()), "");
          if (i % 2 == 0) arrays.back().reset();
        }
        ciranda_shutdown(std::exchange(circle, nullptr));
        for (int i = 1; i < kCalls; i += 2) {
          const std::string error = fake::read(arrays[static_cast<std::size_t>(i)]).error;
          EXPECT_EQ(error.find("Ciranda"), 0U) << error;
        }
        all_pushed.arrive_and_wait();
      },
      [&](ciranda_context*&) { all_pushed.arrive_and_wait(); });
}

TEST(MxnetPush, NamesAndCirclesAreCheckedByTheCall) {
  ASSERT_EQ(find_mx_api(dlopen(nullptr, RTLD_LAZY), "of the test"), "");
  {
    const Array array = fake::make(std::vector<float>(kLength));
    EXPECT_EQ(push_sum("no circle", array), native::kNotInitialized);
  }
  with_a_peer(
      [](ciranda_context*&) {
        const Array one = fake::make(std::vector<float>(kLength));
        const Array other = fake::make(std::vector<float>(kLength));
        EXPECT_NE(push_sum(std::string(2000, 'n'), one).find("1 to 1024 bytes"), std::string::npos);
        EXPECT_EQ(push_sum("used", one), "");
        EXPECT_NE(push_sum("used", other).find("the name is in use"), std::string::npos);
        EXPECT_EQ(push_sum("go", other), "");
        (void)fake::read(one);
      },
      [](ciranda_context*& circle) {
        std::vector<float> values(kLength);
        EXPECT_EQ(plain_sum(circle, "go", values), CIRANDA_OK);  // "used" is still under way there
        EXPECT_EQ(plain_sum(circle, "used", values), CIRANDA_OK);
      });
}

TEST(MxnetHeld, NothingWritesWhatIsHeld) {
  ASSERT_EQ(find_mx_api(dlopen(nullptr, RTLD_LAZY), "of the test"), "");
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
      [](ciranda_context*& circle) {
        std::vector<float> values(kLength, 2.0F);
        EXPECT_EQ(plain_sum(circle, "layouts", values), CIRANDA_OK);
      });
}

TEST(MxnetLent, MemoryIsGivenBackOnAnyThread) {
  ASSERT_EQ(find_mx_api(dlopen(nullptr, RTLD_LAZY), "of the test"), "");
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
