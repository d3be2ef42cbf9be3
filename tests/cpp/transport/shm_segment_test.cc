#include "transport/shm_segment.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>

#include "text_matchers.hpp"

namespace ciranda {
namespace {

std::size_t names_left() {
  const auto entries = std::filesystem::directory_iterator("/dev/shm");
  return static_cast<std::size_t>(std::count_if(begin(entries), end(entries), [](const auto& entry) {
    return entry.path().filename().string().starts_with("ciranda-");
  }));
}

TEST(ShmSegment, IsZeroedAndSharedWithAnotherProcess) {
  auto made = ShmSegment::create(8192);
  ASSERT_TRUE(made.ok()) << made.status().message();
  const auto memory = made.value().memory();
  ASSERT_EQ(memory.size(), 8192U);
  EXPECT_TRUE(std::all_of(memory.begin(), memory.end(), [](std::byte byte) { return byte == std::byte{0}; }));
  memory[17] = std::byte{42};
  const pid_t child = fork();
  if (child == 0) {
    auto opened = ShmSegment::open(made.value().path(), 8192);
    if (!opened.ok() || opened.value().memory()[17] != std::byte{42}) {
      _exit(1);
    }
    opened.value().memory()[18] = std::byte{43};
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(memory[18], std::byte{43});
}

TEST(ShmSegment, IsFoundByProcessAndDescriptor) {
  auto made = ShmSegment::create(8192);
  ASSERT_TRUE(made.ok()) << made.status().message();
  const int descriptor = made.value().descriptor();
  EXPECT_EQ(made.value().path(),
            ShmSegment::path_of(static_cast<std::uint64_t>(getpid()), static_cast<std::uint64_t>(descriptor)));
  made.value().memory()[17] = std::byte{42};
  {
    auto opened = ShmSegment::open(made.value().path(), 8192);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    EXPECT_EQ(opened.value().memory()[17], std::byte{42});
    EXPECT_FALSE(ShmSegment::open(made.value().path(), 4096).ok()) << "another size";
  }
  made.value().release_path();
  EXPECT_EQ(made.value().descriptor(), -1);
  EXPECT_EQ(fcntl(descriptor, F_GETFD), -1);
}

TEST(ShmSegment, LeavesNoNameBehind) {
  const std::size_t before = names_left();
  {
    auto made = ShmSegment::create(4096);
    ASSERT_TRUE(made.ok());
    made.value().release_path();
    EXPECT_EQ(names_left(), before);
    made.value().memory()[0] = std::byte{1};
  }
  EXPECT_EQ(names_left(), before);
}

// For file systems that know no files without a name.
TEST(ShmSegment, ANamedOneIsSharedByItsNameUntilThatIsReleased) {
  const std::size_t before = names_left();
  {
    auto made = ShmSegment::create_named(8192, "/dev/shm");
    ASSERT_TRUE(made.ok()) << made.status().message();
    EXPECT_EQ(names_left(), before + 1);
    EXPECT_TRUE(made.value().path().starts_with("/dev/shm/ciranda-"));
    auto opened = ShmSegment::open(made.value().path(), 8192);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    made.value().release_path();
    EXPECT_EQ(names_left(), before);
    made.value().memory()[17] = std::byte{42};
    EXPECT_EQ(opened.value().memory()[17], std::byte{42});
  }
  { const auto never_released = ShmSegment::create_named(4096, "/dev/shm"); }
  EXPECT_EQ(names_left(), before);
}

TEST(ShmSegment, ANamedOneThatCannotBeMadeLeavesNoName) {
  const std::size_t before = names_left();
  EXPECT_FALSE(ShmSegment::create_named(std::size_t{1} << 50, "/dev/shm").ok());
  EXPECT_EQ(names_left(), before);
  const auto made = ShmSegment::create_named(4096, "/nosuch");
  ASSERT_FALSE(made.ok());
  EXPECT_TRUE(contains(made.status().message(), "cannot make a file in /nosuch"));
}

TEST(ShmSegment, OpensNothingElse) {
  auto made = ShmSegment::create(4096);
  ASSERT_TRUE(made.ok());
  EXPECT_FALSE(ShmSegment::open(made.value().path(), 8192).ok()) << "wrong size";
  EXPECT_FALSE(ShmSegment::open("/dev/null", 0).ok()) << "not a file";
  EXPECT_FALSE(ShmSegment::open("/nosuch", 4096).ok());
  std::string path = testing::TempDir() + "/readable_by_others";
  const int fd = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  ASSERT_EQ(ftruncate(fd, 4096), 0);
  EXPECT_FALSE(ShmSegment::open(path, 4096).ok());
  close(fd);
  unlink(path.c_str());
}

TEST(ShmSegment, TooSmallAFileSystemIsAnErrorWithBothSizes) {
  std::string folder = testing::TempDir() + "/ciranda_tiny_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  if (mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=1m") != 0) {
    rmdir(folder.c_str());
    GTEST_SKIP() << "SKIPPED: mounting a small tmpfs needs root";
  }
  const auto made = ShmSegment::create(4 << 20, folder);
  ASSERT_FALSE(made.ok());
  EXPECT_TRUE(contains(made.status().message(), folder + " is too small: 4.0 MiB are needed, 1.0 MiB are free"));
  EXPECT_TRUE(ShmSegment::create(512 << 10, folder).ok());
  umount2(folder.c_str(), MNT_DETACH);
  rmdir(folder.c_str());
}

TEST(ShmSegment, AnonymousMemoryNeedsNoFile) {
  auto made = ShmSegment::anonymous(4096);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made.value().memory().size(), 4096U);
  EXPECT_TRUE(made.value().path().empty());
}

}  // namespace
}  // namespace ciranda
