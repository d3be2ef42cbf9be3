// What the conformance tests share: worlds of every layout, tensors between guards, and the cases to try.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/engine.hpp"
#include "engine/guarded.hpp"
#include "engine/world.hpp"
#include "kernels/reference.hpp"

namespace ciranda::testing::conformance {

using kernels::testing::Bytes;

inline constexpr std::size_t kSlotBytes = 4096;
inline constexpr std::size_t kSegmentBytes = 256;  // of a block, over channels: "several blocks" is then as many bytes

// Nothing, one, a few, an odd thousand; and more bytes than four slots, not a multiple of anything.
inline std::array<std::size_t, 5> counts(DataType dtype) {
  return {0, 1, 3, 1009, 4 * kSlotBytes / size_of(dtype) + 13};
}

struct Factors {
  double prescale = 1;
  double postscale = 1;
};
inline constexpr std::array<Factors, 3> kFactors{Factors{}, Factors{0.3, 1}, Factors{1, -1.75}};

// A world for each layout, used for many cases.
class Worlds {
 public:
  explicit Worlds(int size, testing::Homes homes = testing::Homes::kHost) {
    for (const Layout layout : kLayouts) {
      WorldOptions options = options_for(layout, size);
      options.fabric.slot_bytes = kSlotBytes;
      options.fabric.ring_bytes = 4096;
      options.config.one_shot_bytes = 2048;
      options.config.slot_bytes = layout == Layout::kArena ? kSlotBytes : kSegmentBytes;
      options.homes = homes;
      if (homes == testing::Homes::kCudaNccl) {
        options.config.gpu_way = "nccl";
        options.config.gpu_reduce = "ciranda";  // the bits of all others
        options.config.nccl_between_hosts = true;
      }
      worlds_.emplace(layout, std::make_unique<World>(size, options));
    }
  }
  World& operator[](Layout layout) { return *worlds_.at(layout); }

 private:
  std::map<Layout, std::unique_ptr<World>> worlds_;
};

// One tensor of one rank, given to a request and looked at afterwards.
class Operand {
 public:
  Operand(const Bytes& input, std::size_t misalignment, bool in_place)
      : content_(input),
        input_(input, misalignment),
        output_(in_place ? 0 : input.size(), misalignment),
        in_place_(in_place) {}

  TensorMemory memory() { return {input_.data(), in_place_ ? input_.data() : output_.data(), home().place}; }
  void expect(const Bytes& expected) const {
    EXPECT_TRUE((in_place_ ? input_ : output_).holds(expected)) << "wrong result";
    EXPECT_TRUE(in_place_ || input_.holds(content_)) << "the input was changed";
    EXPECT_TRUE(input_.is_intact() && output_.is_intact()) << "memory beside the tensor was changed";
  }

 private:
  const Bytes& content_;
  Guarded input_;
  Guarded output_;
  bool in_place_;
};

inline constexpr std::array<std::pair<std::size_t, bool>, 4> kPlacements{
    std::pair{Guarded::kAligned, true}, std::pair{Guarded::kAligned, false}, std::pair{Guarded::kMisaligned, true},
    std::pair{Guarded::kMisaligned, false}};

// How many ranks there are, of which type the tensors are, and where they lie.
using Case = std::tuple<int, DataType, Homes>;
inline std::string name_of(const ::testing::TestParamInfo<Case>& test) {
  const auto& [size, dtype, homes] = test.param;
  return std::to_string(size) + "ranks" + std::string(to_string(dtype)) +
         (homes == Homes::kHost ? "" : to_string(homes));
}

// Every type in small worlds; in the others one type of each element size, for which the engine does the same. That
// every type is reduced rightly whatever the number of ranks is shown by the tests of the kernels.
inline std::vector<DataType> all_types() {
  std::vector<DataType> types;
  for (const DataTypeInfo& row : kDataTypes) types.push_back(row.dtype);
  return types;
}
inline constexpr std::array kTypesBySize{DataType::kUInt8, DataType::kFloat16, DataType::kFloat32, DataType::kInt64,
                                         DataType::kComplex128};

// On devices one type of each element size: copies know no more of a type, and what is combined is in host memory. Its
// pages cost the system more than the rest, so no size of world has all of them.
inline std::vector<Case> every_size_on_device() {
  std::vector<Case> all;
  for (const Homes homes : kHomesOnDevice) {
    all.emplace_back(1, DataType::kFloat32, homes);
    for (const DataType dtype : {DataType::kUInt8, DataType::kFloat16, DataType::kComplex128})
      all.emplace_back(2, dtype, homes);
    for (const DataType dtype : {DataType::kFloat32, DataType::kInt64}) all.emplace_back(3, dtype, homes);
  }
  return all;
}
inline const auto kEverySizeOnDevice = ::testing::ValuesIn(every_size_on_device());
inline const auto kMixedWithHost =
    ::testing::Combine(::testing::Values(2, 3), ::testing::Values(DataType::kFloat16, DataType::kInt64),
                       ::testing::ValuesIn(kHomesBesideHost));
// By a driver, which takes longer. Not with sanitizers, which the fake driver's pages without access are not for.
#ifndef CIRANDA_SANITIZED
// Staged, one type is enough, as above.
inline const auto kOnGpu =
    ::testing::Values(Case{1, DataType::kFloat32, Homes::kCuda}, Case{2, DataType::kUInt8, Homes::kCuda},
                      Case{2, DataType::kFloat32, Homes::kCuda}, Case{2, DataType::kUInt8, Homes::kCudaStaged},
                      Case{2, DataType::kFloat32, Homes::kCudaWithoutKernels});
inline const auto kByNccl = ::testing::Combine(::testing::Values(3), ::testing::Values(DataType::kFloat32),
                                               ::testing::Values(Homes::kCudaNccl));
#endif

// Of groups, which have every type.
using GroupCase = std::tuple<int, Homes>;
inline const auto kGroupCases = ::testing::Combine(::testing::Values(1, 2, 4, 7), ::testing::ValuesIn(kHomes));
#ifndef CIRANDA_SANITIZED
inline const auto kGroupsOnGpu = ::testing::Values(
    GroupCase{2, Homes::kCuda}, GroupCase{7, Homes::kCuda}, GroupCase{2, Homes::kCudaStaged},
    GroupCase{2, Homes::kCudaWithoutKernels}, GroupCase{3, Homes::kCudaMixed}, GroupCase{2, Homes::kCudaNccl});
#endif
inline std::string name_of_group(const ::testing::TestParamInfo<GroupCase>& test) {
  const auto& [size, homes] = test.param;
  return std::to_string(size) + "ranks" + (homes == Homes::kHost ? "" : to_string(homes));
}

}  // namespace ciranda::testing::conformance
