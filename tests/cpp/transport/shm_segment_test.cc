#include "transport/shm_segment.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "text_matchers.hpp"
#include "transport/small_file_system.hpp"

namespace ciranda {
namespace {

std::size_t names_left() {
  const auto entries = std::filesystem::directory_iterator("/dev/shm");
  return static_cast<std::size_t>(std::count_if(begin(entries), end(entries), [](const auto& entry) {
    return entry.path().filename().string().starts_with("ciranda-");
  }));
}

void run_on(int processor) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(processor, &one);
  sched_setaffinity(0, sizeof one, &one);
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
    auto made = ShmSegment::create_named(8192, {}, "/dev/shm");
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
  { const auto never_released = ShmSegment::create_named(4096, {}, "/dev/shm"); }
  EXPECT_EQ(names_left(), before);
}

TEST(ShmSegment, ANamedOneThatCannotBeMadeLeavesNoName) {
  const std::size_t before = names_left();
  EXPECT_FALSE(ShmSegment::create_named(std::size_t{1} << 50, {}, "/dev/shm").ok());
  EXPECT_EQ(names_left(), before);
  const auto made = ShmSegment::create_named(4096, {}, "/nosuch");
  ASSERT_FALSE(made.ok());
  EXPECT_TRUE(contains(made.status().message(), "cannot make a file in /nosuch"));
}

TEST(ShmSegment, OpensNothingElse) {
  auto made = ShmSegment::create(4096);
  ASSERT_TRUE(made.ok());
  EXPECT_FALSE(ShmSegment::open(made.value().path(), 8192).ok()) << "wrong size";
  EXPECT_FALSE(ShmSegment::open("/dev/null", 0).ok()) << "not a file";
  EXPECT_FALSE(ShmSegment::open("/nosuch", 4096).ok());
  std::string path = ::testing::TempDir() + "/readable_by_others";
  const int fd = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  ASSERT_EQ(ftruncate(fd, 4096), 0);
  EXPECT_FALSE(ShmSegment::open(path, 4096).ok());
  close(fd);
  unlink(path.c_str());
}

TEST(ShmSegment, TooSmallAFileSystemIsAnErrorWithBothSizes) {
  const SmallFileSystem small;
  if (!small.is_there()) GTEST_SKIP() << "SKIPPED: mounting a small tmpfs needs root";
  const std::string& folder = small.folder();
  const std::string too_small = folder + " is too small: 4.0 MiB are needed, 1.0 MiB are free";
  const auto made = ShmSegment::create(4 << 20, folder);
  ASSERT_FALSE(made.ok());
  EXPECT_TRUE(contains(made.status().message(), too_small));
  EXPECT_TRUE(ShmSegment::create(512 << 10, folder).ok());
  // Whoever allocates only a part of it looks whether there is room for all.
  const auto part = ShmSegment::create_part(4 << 20, std::array{ShmExtent{0, 4096}}, folder);
  ASSERT_FALSE(part.ok());
  EXPECT_TRUE(contains(part.status().message(), too_small));
}

// What is allocated of a file that is open in this process.
std::size_t allocated_bytes(const ShmSegment& segment) {
  struct stat info {};
  EXPECT_EQ(fstat(segment.descriptor(), &info), 0);
  return static_cast<std::size_t>(info.st_blocks) * 512;
}

TEST(ShmSegment, EachAllocatesItsOwnPart) {
  constexpr std::size_t kHalf = 64 << 10;
  const auto made = ShmSegment::create_part(2 * kHalf, std::array{ShmExtent{0, kHalf}, ShmExtent{kHalf, 0}});
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(allocated_bytes(made.value()), kHalf);
  const auto looked_at = ShmSegment::open(made.value().path(), 2 * kHalf);
  ASSERT_TRUE(looked_at.ok()) << looked_at.status().message();
  EXPECT_EQ(allocated_bytes(made.value()), kHalf);
  const auto opened = ShmSegment::open(made.value().path(), 2 * kHalf, std::array{ShmExtent{kHalf, kHalf}});
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_EQ(allocated_bytes(made.value()), 2 * kHalf);
  opened.value().memory()[2 * kHalf - 1] = std::byte{1};
  EXPECT_EQ(made.value().memory()[2 * kHalf - 1], std::byte{1});
}

TEST(ShmSegment, APartForWhichThereIsNoRoomAnyMoreIsAnErrorToo) {
  SmallFileSystem small;
  if (!small.is_there()) GTEST_SKIP() << "SKIPPED: mounting a small tmpfs needs root";
  constexpr std::size_t kHalf = 256 << 10;
  const auto made = ShmSegment::create_part(2 * kHalf, std::array{ShmExtent{0, kHalf}}, small.folder());
  ASSERT_TRUE(made.ok()) << made.status().message();
  ASSERT_TRUE(small.occupy(640 << 10));
  const auto opened = ShmSegment::open(made.value().path(), 2 * kHalf, std::array{ShmExtent{kHalf, kHalf}});
  ASSERT_FALSE(opened.ok());
  EXPECT_TRUE(contains(opened.status().message(), "is too small: 0.3 MiB are needed, 0.2 MiB are free"))
      << opened.status().message();
}

// The first processor of each node on which this process may run.
std::map<unsigned, int> processors_by_node() {
  std::map<unsigned, int> found;
  cpu_set_t usable;
  EXPECT_EQ(sched_getaffinity(0, sizeof usable, &usable), 0);
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (!CPU_ISSET(processor, &usable)) continue;
    run_on(processor);
    unsigned on = 0;
    unsigned node = 0;
    EXPECT_EQ(getcpu(&on, &node), 0);
    found.emplace(node, processor);
  }
  sched_setaffinity(0, sizeof usable, &usable);
  return found;
}

// By node, how many pages of the mapping that begins there the system says it has.
std::map<unsigned, std::size_t> pages_by_node(const void* begin) {
  std::ostringstream address;
  address << std::hex << reinterpret_cast<std::uintptr_t>(begin) << ' ';
  std::ifstream maps("/proc/self/numa_maps");
  std::map<unsigned, std::size_t> found;
  for (std::string line; std::getline(maps, line);) {
    if (!line.starts_with(address.str())) continue;
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      unsigned node = 0;
      std::size_t n_pages = 0;
      if (std::sscanf(word.c_str(), "N%u=%zu", &node, &n_pages) == 2) found[node] = n_pages;
    }
  }
  return found;
}

// On a machine with one node this says little.
TEST(ShmSegment, LiesOnTheNodeOfWhoAllocatesItWhoeverTouchesIt) {
  if (!std::filesystem::exists("/proc/self/numa_maps")) GTEST_SKIP() << "SKIPPED: the system tells nothing of nodes";
  constexpr std::size_t kPages = 16;
  cpu_set_t usual;
  ASSERT_EQ(sched_getaffinity(0, sizeof usual, &usual), 0);
  const auto processors = processors_by_node();
  std::vector<ShmExtent> parts;
  for (std::size_t i = 0; i < processors.size(); ++i) parts.push_back({i * kPages * 4096, kPages * 4096});
  const std::size_t n_bytes = parts.size() * kPages * 4096;
  const auto made = ShmSegment::create_part(n_bytes, {});
  ASSERT_TRUE(made.ok()) << made.status().message();
  auto part = parts.begin();
  for (const auto& [node, processor] : processors) {
    run_on(processor);
    EXPECT_TRUE(ShmSegment::open(made.value().path(), n_bytes, std::span(&*part++, 1)).ok());
  }
  std::fill(made.value().memory().begin(), made.value().memory().end(), std::byte{1});
  const auto found = pages_by_node(made.value().memory().data());
  for (const auto& [node, processor] : processors) EXPECT_EQ(found.count(node) != 0 ? found.at(node) : 0, kPages);
  sched_setaffinity(0, sizeof usual, &usual);
}

TEST(ShmSegment, AnonymousMemoryNeedsNoFile) {
  auto made = ShmSegment::anonymous(4096);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made.value().memory().size(), 4096U);
  EXPECT_TRUE(made.value().path().empty());
}

}  // namespace
}  // namespace ciranda
