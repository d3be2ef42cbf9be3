// Which tensors are copied at once.
#include "backend/cuda/copy_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/round_up.hpp"

namespace ciranda::cuda {
namespace {

constexpr std::size_t kBuffer = 1024;
constexpr std::size_t kLine = 64;

// Where memory that nobody accesses is.
std::byte* at(std::uintptr_t address) { return reinterpret_cast<std::byte*>(address); }

constexpr std::uintptr_t kHost = 1 << 20;
constexpr std::uintptr_t kDevice = 1 << 30;

// From the device, where they are far apart, to lines of one block of the host.
std::vector<DeviceCopy> tensors(const std::vector<std::size_t>& sizes) {
  std::vector<DeviceCopy> copies;
  std::uintptr_t host = kHost;
  std::uintptr_t device = kDevice;
  for (const std::size_t n_bytes : sizes) {
    const std::size_t padded = round_up(n_bytes, kLine);
    copies.push_back({at(host), at(device), n_bytes, padded - n_bytes});
    host += padded;
    device += padded + kLine;
  }
  return copies;
}

CopyPlan planned(const std::vector<DeviceCopy>& copies, std::size_t buffer_bytes = kBuffer) {
  return plan_copies(copies, Direction::kToHost, buffer_bytes);
}

std::vector<std::size_t> parts_of_steps(const CopyPlan& plan) {
  std::vector<std::size_t> n_parts;
  for (const CopyStep& step : plan.steps) n_parts.push_back(step.n_parts);
  return n_parts;
}

// The parts are the tensors, whole and in order; no step needs more than the buffer, nor begins amid another's.
void expect_copies_all(const CopyPlan& plan, const std::vector<DeviceCopy>& copies) {
  std::size_t part = 0;
  for (const DeviceCopy& copy : copies) {
    for (std::size_t n_done = 0; n_done < copy.n_bytes; n_done += plan.parts[part++].n_bytes) {
      ASSERT_LT(part, plan.parts.size());
      EXPECT_EQ(plan.parts[part].to, copy.to + n_done);
      EXPECT_EQ(plan.parts[part].from, copy.from + n_done);
      ASSERT_LE(plan.parts[part].n_bytes, copy.n_bytes - n_done);
    }
  }
  EXPECT_EQ(part, plan.parts.size());
  std::size_t first = 0;
  for (const CopyStep& step : plan.steps) {
    EXPECT_EQ(step.first_part, first);
    first += step.n_parts;
    const DeviceCopy& last = plan.parts[first - 1];
    const auto n_bytes = static_cast<std::size_t>(last.to + last.n_bytes - plan.parts[step.first_part].to);
    EXPECT_TRUE(!step.is_packed() || n_bytes <= kBuffer) << n_bytes;
  }
  EXPECT_EQ(first, plan.parts.size());
}

TEST(CopyPlan, ManyTensorsAreCopiedAtOnce) {
  const auto copies = tensors({8, 64, 100, 1, 300});
  const CopyPlan plan = planned(copies);
  EXPECT_EQ(parts_of_steps(plan), std::vector<std::size_t>{5});
  EXPECT_EQ(plan.n_packed, 5U);
  expect_copies_all(plan, copies);
}

TEST(CopyPlan, FewTensorsAreCopiedOneByOne) {
  EXPECT_TRUE(planned({}).steps.empty());
  EXPECT_EQ(parts_of_steps(planned(tensors({8}))), std::vector<std::size_t>{1});
  EXPECT_EQ(parts_of_steps(planned(tensors({8, 8}))), (std::vector<std::size_t>{1, 1}));
  EXPECT_EQ(planned(tensors({8, 8})).n_packed, 0U);
}

TEST(CopyPlan, ALongTensorIsOneCopy) {
  const auto copies = tensors({100 * kBuffer + 7});
  EXPECT_EQ(parts_of_steps(planned(copies)), std::vector<std::size_t>{1});
  expect_copies_all(planned(copies), copies);
}

TEST(CopyPlan, WindowsAreOfTheBuffersSize) {
  // Three in the first window; the long one alone in most; the last window has its end, and the rest.
  const auto copies = tensors({64, 64, 20 * kBuffer, 64, 64});
  const CopyPlan plan = planned(copies);
  EXPECT_EQ(parts_of_steps(plan), (std::vector<std::size_t>{3, 1, 3}));
  EXPECT_EQ(plan.parts[3].n_bytes, 19 * kBuffer);
  expect_copies_all(plan, copies);
}

TEST(CopyPlan, ATensorBeginsAWindowWhereTheHostsMemoryHasAGap) {
  auto copies = tensors({64, 64, 64, 64, 64, 64, 64});
  copies[3].n_bytes = copies[3].n_bytes_behind = 0;  // its line is somebody else's
  const CopyPlan plan = planned(copies);
  EXPECT_EQ(parts_of_steps(plan), (std::vector<std::size_t>{3, 3}));
  expect_copies_all(plan, copies);
}

TEST(CopyPlan, TheOrderIsThatOnTheHost) {
  const auto copies = tensors({8, 64, 100, 1, 300});
  expect_copies_all(planned({copies[3], copies[0], copies[4], copies[2], copies[1]}), copies);
}

TEST(CopyPlan, WithoutABufferNothingIsPacked) {
  const auto copies = tensors({64, 0, 64, 20 * kBuffer, 64});
  const CopyPlan plan = planned(copies, 0);
  EXPECT_EQ(parts_of_steps(plan), (std::vector<std::size_t>{1, 1, 1, 1}));
  EXPECT_EQ(plan.n_packed, 0U);
  expect_copies_all(plan, copies);
}

TEST(CopyPlan, StepsAreFewWhateverTheSizes) {
  for (std::size_t seed = 1; seed <= 50; ++seed) {
    std::vector<std::size_t> sizes;
    std::size_t n_bytes = 0;
    for (std::size_t i = 0; i < 100; ++i) {
      sizes.push_back(i * seed * 2654435761U % (i % 7 == 0 ? 5000 : 200));
      n_bytes += round_up(sizes.back(), kLine);
    }
    const auto copies = tensors(sizes);
    const CopyPlan plan = planned(copies);
    expect_copies_all(plan, copies);
    EXPECT_LE(plan.steps.size(), 2 * (n_bytes / kBuffer + 1)) << seed;
  }
}

}  // namespace
}  // namespace ciranda::cuda
