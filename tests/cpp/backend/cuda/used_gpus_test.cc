// When ranks are asked whether they mean to share a GPU, and which one asks.
#include "backend/cuda/used_gpus.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ciranda::cuda {
namespace {

UsedGpu on(char gpu, int n_visible, int rank) { return {.uuid = {{gpu}}, .n_visible = n_visible, .rank = rank}; }

// Of all ranks, by their places.
std::vector<std::string> advice(const std::vector<UsedGpu>& used) {
  std::vector<std::string> texts;
  for (std::size_t own = 0; own < used.size(); ++own) texts.push_back(advice_on_sharing(used, own, "GPU 0 (GPU-5f)"));
  return texts;
}

std::vector<std::string> silence(std::size_t n_ranks) { return std::vector<std::string>(n_ranks); }

TEST(UsedGpus, TheLastOfThoseThatShareOneAsks) {
  const auto texts = advice({on('a', 4, 0), on('a', 4, 1), on('b', 4, 5)});
  EXPECT_EQ(
      texts[1],
      "ranks 0, 1 have their tensors on one GPU, here GPU 0 (GPU-5f) of 4, and the ranks of this host use 2. This "
      "works, but they share the GPU. If each should have its own, choose it before the first tensor: "
      "torch.cuda.set_device(hvd.local_rank())?");
  EXPECT_EQ(texts[0] + texts[2], "");
}

TEST(UsedGpus, OnlyOneOfTwoPairsAsks) {
  const auto texts = advice({on('a', 4, 0), on('b', 4, 1), on('b', 4, 2), on('a', 4, 3)});
  EXPECT_NE(texts[3], "");
  EXPECT_EQ(texts[0] + texts[1] + texts[2], "");
}

TEST(UsedGpus, NobodyAsksWhereEachHasItsOwn) {
  EXPECT_EQ(advice({on('a', 1, 0), on('b', 1, 1), on('c', 1, 2)}), silence(3));  // a CUDA_VISIBLE_DEVICES each
  EXPECT_EQ(advice({on('a', 8, 0), on('b', 8, 1)}), silence(2));
}

TEST(UsedGpus, NobodyAsksWhereThereAreNoOthersToUse) {
  EXPECT_EQ(advice({on('a', 1, 0), on('a', 1, 1)}), silence(2));
  EXPECT_EQ(advice({on('a', 2, 0), on('b', 2, 1), on('a', 2, 2), on('b', 2, 3)}), silence(4));
  EXPECT_EQ(advice({on('a', 0, 0), on('a', 0, 1)}), silence(2));  // their number is not known
}

TEST(UsedGpus, ItAsksWhateverTheNumberThatTheGpuHasInAProcess) {
  EXPECT_NE(advice({on('b', 2, 0), on('b', 1, 1)})[1], "");
}

}  // namespace
}  // namespace ciranda::cuda
