// The trial of shared memory, with everything that can be wrong with it.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "membership/host_identity.hpp"
#include "membership/test_job.hpp"
#include "transport/text_matchers.hpp"

namespace ciranda {
namespace {

// A tmpfs of one mebibyte; skips the test where it may not be mounted.
class TinyFolder {
 public:
  TinyFolder() {
    path_ = testing::TempDir() + "/ciranda_tiny_XXXXXX";
    EXPECT_NE(mkdtemp(path_.data()), nullptr);
    mounted_ = mount("tmpfs", path_.c_str(), "tmpfs", 0, "size=1m") == 0;
  }
  ~TinyFolder() {
    if (mounted_) {
      umount2(path_.c_str(), MNT_DETACH);
    }
    rmdir(path_.c_str());
  }
  TinyFolder(const TinyFolder&) = delete;
  TinyFolder& operator=(const TinyFolder&) = delete;

  bool mounted() const { return mounted_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool mounted_ = false;
};

void expect_no_arena(const Meshes& meshes) {
  for (const auto& mesh : meshes) {
    EXPECT_EQ(mesh->arena(), nullptr);
    for (int peer = 0; peer < mesh->size(); ++peer) {
      EXPECT_EQ(mesh->peer(peer).shares_memory, peer == mesh->rank());
    }
  }
}

TEST(ShmProbe, TooLittleSpaceMeansTcpAndOneWarningThatSaysWhatToDo) {
  const TinyFolder tiny;
  if (!tiny.mounted()) {
    GTEST_SKIP() << "SKIPPED: mounting a small tmpfs needs root";
  }
  TestJob job(3);
  const auto meshes = job.join_well([&](BootstrapOptions& options) { options.shm_folder = tiny.path(); });
  ASSERT_EQ(meshes.size(), 3U);
  expect_no_arena(meshes);
  ASSERT_EQ(job.warnings().size(), 1U);
  EXPECT_TRUE(contains(job.warnings()[0], "TCP is used instead"));
  EXPECT_TRUE(contains(job.warnings()[0], tiny.path() + " is too small"));
  EXPECT_TRUE(contains(job.warnings()[0], "MiB are needed, 1.0 MiB are free"));
  EXPECT_TRUE(contains(job.warnings()[0], "--shm-size"));
}

TEST(ShmProbe, AFolderThatIsNotThereMeansTcp) {
  TestJob job(2);
  const auto meshes = job.join_well([](BootstrapOptions& options) { options.shm_folder = "/nosuch"; });
  expect_no_arena(meshes);
  ASSERT_EQ(job.warnings().size(), 1U);
  EXPECT_TRUE(contains(job.warnings()[0], "/nosuch"));
}

TEST(ShmProbe, WithoutSharedMemoryNobodyWarns) {
  TestJob job(3);
  const auto meshes = job.join_well([](BootstrapOptions& options) { options.use_shared_memory = false; });
  expect_no_arena(meshes);
  EXPECT_TRUE(job.warnings().empty());
}

TEST(ShmProbe, OneThatDoesNotWantToShareLeavesTheOthersTheirs) {
  TestJob job(4);
  const auto meshes = job.join_well([](BootstrapOptions& options) { options.use_shared_memory = options.rank != 1; });
  ASSERT_EQ(meshes.size(), 4U);
  EXPECT_TRUE(meshes[0]->peer(3).shares_memory);
  EXPECT_TRUE(meshes[3]->peer(2).shares_memory);
  EXPECT_FALSE(meshes[0]->peer(1).shares_memory);
  EXPECT_FALSE(meshes[1]->peer(0).shares_memory);
  EXPECT_EQ(meshes[0]->arena(), nullptr);
  EXPECT_TRUE(job.warnings().empty());
}

TEST(ShmProbe, LeavesNoNameInSharedMemory) {
  const auto meshes = TestJob(4).join_well();
  ASSERT_NE(meshes[0]->arena(), nullptr);
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    EXPECT_FALSE(entry.path().filename().string().starts_with("ciranda-")) << entry.path();
  }
}

TEST(ShmProbe, DifferentSlotSizesAreAMismatchForAll) {
  TestJob job(2);
  for (const auto& each :
       job.join([](BootstrapOptions& options) { options.slot_bytes = options.rank == 0 ? 4096 : 8192; })) {
    EXPECT_EQ(each.status().kind(), ErrorKind::kMismatch);
    EXPECT_TRUE(contains(each.status().message(), "CIRANDA_SLOT_BYTES"));
    EXPECT_TRUE(contains(each.status().message(), "4096"));
    EXPECT_TRUE(contains(each.status().message(), "8192"));
  }
}

TEST(HostIdentity, IsStableAndKnowsTheMachine) {
  const HostIdentity identity = identify_host("/dev/shm");
  EXPECT_FALSE(identity.machine.empty());
  EXPECT_EQ(identity.machine, identify_host("/nosuch").machine);
  EXPECT_EQ(identity.shared_memory, identify_host("/dev/shm").shared_memory);
  EXPECT_NE(identity.shared_memory, identify_host("/proc").shared_memory);
}

}  // namespace
}  // namespace ciranda
