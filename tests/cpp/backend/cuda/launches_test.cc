// What a launch touches, the translation of addresses, offsets beyond 32 bits, and the numbers of blocks.
#include <sys/mman.h>

#include <array>
#include <cmath>

#include "backend/cuda/twin_launch.hpp"
#include "base/checksum.hpp"
// The kernels themselves, to call single threads of a launch that is too large to run.
#include "fakes/on_host.hpp"
// The primitives come first: the kernels use them.
#include "backend/cuda/kernels/kernels.inc"

namespace ciranda::cuda {
namespace {

struct Ranges {
  std::vector<fakes::Touch> read, written;
};

template <class Arguments>
Ranges touched_by(Kernel kernel, const Arguments& arguments) {
  Arguments copy = arguments;
  void* parameters[] = {&copy};
  std::vector<fakes::Touch> touched;
  fakes::find_twin(to_string(kernel))->touches(parameters, touched);
  Ranges ranges;
  for (const fakes::Touch& touch : touched) (touch.writes ? ranges.written : ranges.read).push_back(touch);
  return ranges;
}

bool is(const fakes::Touch& touch, const void* begin, std::size_t n_bytes) {
  return touch.begin == begin && touch.n_bytes == n_bytes;
}

TEST(Launches, EveryKernelHasATwin) {
  for (const std::string_view name : kKernelNames) EXPECT_NE(fakes::find_twin(name), nullptr) << name;
  EXPECT_EQ(fakes::find_twin("reduce"), nullptr);
}

TEST(Launches, ReductionsTouchInputsAndOutput) {
  std::array<std::array<std::byte, 64>, 3> memory{};
  const std::vector<const std::byte*> inputs{memory[0].data(), memory[1].data()};
  const ReduceLaunch made = make_reduce({}, inputs, memory[2].data(), 10);
  const Ranges touched = touched_by(made.kernel, made.arguments);
  ASSERT_EQ(touched.read.size(), 2U);
  EXPECT_TRUE(is(touched.read[0], memory[0].data(), 40) && is(touched.read[1], memory[1].data(), 40));
  ASSERT_EQ(touched.written.size(), 1U);
  EXPECT_TRUE(is(touched.written[0], memory[2].data(), 40));
}

TEST(Launches, OthersTouchTheirRangesAndTheArrayOfThem) {
  std::array<std::byte, 64> from{};
  std::array<std::byte, 64> to{};
  std::array<Piece, 2> pieces{Piece{from.data(), to.data(), 64, 0}, Piece{from.data(), to.data(), 0, 1}};
  const Pieces all{pieces.data(), pieces.size(), 1};
  for (const bool copies : {false, true}) {
    const Ranges touched = copies ? touched_by(Kernel::copy_bytes, CopyArguments{all})
                                  : touched_by(Kernel::add_checksums, ChecksumArguments{all});
    ASSERT_EQ(touched.read.size(), 2U);
    EXPECT_TRUE(is(touched.read[0], pieces.data(), sizeof pieces) && is(touched.read[1], from.data(), 64));
    ASSERT_EQ(touched.written.size(), 1U);
    EXPECT_TRUE(is(touched.written[0], to.data(), copies ? 64 : 8));
  }
}

constexpr std::uintptr_t kDistance = std::uintptr_t{1} << 44;

std::byte* nearer(const void* address) {
  return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(address) - kDistance);
}
template <class T>
T* farther(T* address) {
  return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(address) + kDistance);
}

TEST(Launches, TwinsAccessTranslatedAddressesOnly) {
  const std::array<float, 4> values{1, 2, 3, INFINITY};
  std::array<float, 4> out{};
  std::uint64_t total = 0;
  Piece piece{farther(values.data()), farther(out.data()), sizeof values, 0};
  const Pieces pieces{farther(&piece), 1, 1};
  fakes::set_translation(nearer);
  testing::launch(Kernel::copy_bytes, CopyArguments{pieces});
  Piece summed{farther(values.data()), farther(&total), sizeof values, 0};
  testing::launch(Kernel::add_checksums, ChecksumArguments{{farther(&summed), 1, 1}});
  const std::array<const std::byte*, 1> inputs{farther(reinterpret_cast<const std::byte*>(values.data()))};
  std::array<float, 4> doubled{};
  const ReduceLaunch made =
      make_reduce({.prescale = 2}, inputs, farther(reinterpret_cast<std::byte*>(doubled.data())), 4);
  testing::launch(made.kernel, made.arguments);
  fakes::set_translation(nullptr);
  EXPECT_EQ(out, values);
  EXPECT_EQ(checksum_of_total(total, sizeof values), checksum(std::as_bytes(std::span(values))));
  EXPECT_EQ(doubled, (std::array<float, 4>{2, 4, 6, INFINITY}));
}

// Memory of which only the pages that are written exist.
class HugeMemory {
 public:
  HugeMemory()
      : at_(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~HugeMemory() {
    if (is_there()) munmap(at_, kBytes);
  }
  HugeMemory(const HugeMemory&) = delete;
  HugeMemory& operator=(const HugeMemory&) = delete;

  bool is_there() const { return at_ != MAP_FAILED; }
  std::byte* data() const { return static_cast<std::byte*>(at_); }

  static constexpr std::size_t kBytes = (std::size_t{5} << 30) + 48;

 private:
  void* at_;
};

TEST(Launches, OffsetsHave64Bits) {
  const HugeMemory from;
  const HugeMemory to;
  if (!from.is_there() || !to.is_there()) GTEST_SKIP() << "5 GiB of addresses are not to be had";
  constexpr std::size_t kLast = HugeMemory::kBytes - 16;
  std::fill_n(from.data() + kLast, 16, std::byte{7});

  Piece piece{from.data(), to.data(), HugeMemory::kBytes, 0};
  const auto n_chunks = number_chunks({&piece, 1}, kChunkBytes);
  copy({{&piece, 1, n_chunks}}, {static_cast<std::uint32_t>(n_chunks - 1), static_cast<std::uint32_t>(n_chunks), 2, 8});
  EXPECT_TRUE(std::equal(to.data() + kLast, to.data() + kLast + 16, from.data() + kLast));

  constexpr std::uint32_t kBlocks = HugeMemory::kBytes / 16 / kMostThreads + 1;
  const std::vector<const std::byte*> inputs{from.data(), from.data()};
  const ReduceLaunch made = make_reduce({.dtype = DataType::kUInt8}, inputs, to.data(), HugeMemory::kBytes);
  reduce<Integer<std::uint8_t>, Sum>(made.arguments, {kBlocks - 1, kBlocks, 2, kMostThreads});
  EXPECT_EQ(to.data()[kLast], std::byte{14});

  std::uint64_t total = 0;
  std::uint64_t of_zeros = 0;
  const auto add_last = [&](const HugeMemory& memory, std::uint64_t& to_total) {
    Piece all{memory.data(), &to_total, HugeMemory::kBytes, 0};
    const auto n = static_cast<std::uint32_t>(number_chunks({&all, 1}, kChecksumChunkBytes));
    add_checksums({{&all, 1, n}}, {n - 1, n, 0, kMostThreads});
  };
  const HugeMemory zeros;
  if (!zeros.is_there()) GTEST_SKIP() << "5 GiB of addresses are not to be had";
  add_last(from, total);
  add_last(zeros, of_zeros);
  EXPECT_NE(total, of_zeros);
}

TEST(Launches, ChunksAreNumberedAcrossRanges) {
  std::array<Piece, 4> pieces{};
  pieces[0].n_bytes = 3 * kChunkBytes;
  pieces[2].n_bytes = 1;
  pieces[3].n_bytes = kChunkBytes + 1;
  EXPECT_EQ(number_chunks(pieces, kChunkBytes), 6U);
  EXPECT_EQ(pieces[1].first_chunk, 3U);
  EXPECT_EQ(pieces[2].first_chunk, 3U);
  EXPECT_EQ(pieces[3].first_chunk, 4U);
}

TEST(Launches, BlocksKeepTheGpuBusyAndHaveWork) {
  EXPECT_EQ(blocks_for_chunks(0, 132), 1U);
  EXPECT_EQ(blocks_for_chunks(5, 132), 5U);
  EXPECT_EQ(blocks_for_chunks(1'000'000, 132), 528U);
  EXPECT_EQ(blocks_for_bytes(4096, 132), 1U);
  EXPECT_EQ(blocks_for_bytes(4097, 132), 2U);
  EXPECT_EQ(blocks_for_bytes(std::uint64_t{1} << 40, 2), 8U);
}

}  // namespace
}  // namespace ciranda::cuda
