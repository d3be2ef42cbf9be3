// Which image a GPU gets, and the images of this build.
#include "backend/cuda/kernels/images.hpp"

#include <gtest/gtest.h>

#include <array>

namespace ciranda::cuda {
namespace {

constexpr std::array<ImageRow, 5> kRows{{{70, 0, 0, 0}, {75, 0, 0, 0}, {80, 0, 0, 0}, {100, 0, 0, 0}, {90, 1, 0, 0}}};

int chosen(int compute_capability) {
  const ImageRow* row = best_image(kRows, compute_capability);
  return row == nullptr ? 0 : static_cast<int>(row->architecture) + (row->is_ptx != 0 ? 1000 : 0);
}

TEST(Images, MachineCodeIsForAMajorNumber) {
  EXPECT_EQ(chosen(70), 70);
  EXPECT_EQ(chosen(72), 70);
  EXPECT_EQ(chosen(75), 75);
  EXPECT_EQ(chosen(89), 80);
  EXPECT_EQ(chosen(103), 100);
}

TEST(Images, PtxIsForNewerGpus) {
  EXPECT_EQ(chosen(90), 1090);
  EXPECT_EQ(chosen(121), 1090);
}

TEST(Images, OldGpusGetNone) {
  EXPECT_EQ(chosen(61), 0);
  EXPECT_EQ(chosen(0), 0);
}

TEST(Images, AreThereIfTheLibraryWasBuiltWithNvrtc) {
  EXPECT_TRUE(image_for(61).empty());
  for (const int capability : {70, 75, 80, 86, 89, 90, 100, 103, 110, 120, 121, 130}) {
    EXPECT_EQ(image_for(capability).empty(), !has_images()) << capability;
  }
}

}  // namespace
}  // namespace ciranda::cuda
