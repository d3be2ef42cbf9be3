// The trial of shared memory, with everything that can be wrong with it.
#include "membership/shm_probe.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <optional>
#include <thread>

#include "membership/blocking_io.hpp"
#include "membership/bootstrap_messages.hpp"
#include "membership/host_identity.hpp"
#include "membership/host_links.hpp"
#include "membership/test_job.hpp"
#include "text_matchers.hpp"
#include "transport/small_file_system.hpp"

namespace ciranda {
namespace {

void expect_no_arena(const Meshes& meshes) {
  for (const auto& mesh : meshes) {
    EXPECT_EQ(mesh->arena(), nullptr);
    for (int peer = 0; peer < mesh->size(); ++peer) {
      EXPECT_EQ(mesh->peer(peer).shares_memory, peer == mesh->rank());
    }
  }
}

TEST(ShmProbe, TooLittleSpaceMeansTcpAndOneWarningThatSaysWhatToDo) {
  const SmallFileSystem tiny;
  if (!tiny.is_there()) GTEST_SKIP() << "SKIPPED: mounting a small tmpfs needs root";
  TestJob job(3);
  const auto meshes = job.join_well([&](BootstrapOptions& options) { options.shm_folder = tiny.folder(); });
  ASSERT_EQ(meshes.size(), 3U);
  expect_no_arena(meshes);
  ASSERT_EQ(job.warnings().size(), 1U);
  EXPECT_TRUE(contains(job.warnings()[0], "TCP is used instead"));
  EXPECT_TRUE(contains(job.warnings()[0], tiny.folder() + " is too small"));
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

// One rank of the trial is real; those next to it are played by the test, over pairs of sockets.
class Trial {
 public:
  explicit Trial(int real_rank, int n_ranks = 2) : n_ranks_(n_ranks) {
    options_.rank = real_rank;
    options_.group.resize(static_cast<std::size_t>(n_ranks));
    std::iota(options_.group.begin(), options_.group.end(), 0);
    options_.slot_bytes = 4096;
    options_.folder = "/dev/shm";
    options_.limit = deadline_;
    options_.control = [this](int rank) -> const KeyedSocket& { return next_to_it_.at(rank).real; };
    options_.name = [](int rank) { return "rank " + std::to_string(rank); };
    options_.warn = [this](const std::string& text) { warnings_.push_back(text); };
    if (real_rank != 0) play(parent_of(real_rank, n_ranks));
    for (const int child : children_of(real_rank, n_ranks)) play(child);
    thread_ = std::thread([this] { result_.emplace(probe_shared_memory(options_)); });
  }
  ~Trial() { finish(); }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  Result<ShmProbeResult>& finish() {
    if (thread_.joinable()) {
      thread_.join();
    }
    return *result_;
  }
  // Of two ranks, the other one.
  void say(const std::vector<std::byte>& message) { say(1 - options_.rank, message); }
  std::vector<std::byte> hear() { return hear(1 - options_.rank); }
  void leave() { leave(1 - options_.rank); }

  void say(int rank, const std::vector<std::byte>& message) {
    Next& next = next_to_it_.at(rank);
    EXPECT_TRUE(send_all(next.played.get(), next.messages.seal(message), deadline_).ok());
  }
  std::vector<std::byte> hear(int rank) {
    Next& next = next_to_it_.at(rank);
    return receive_message(next.played.get(), next.messages, kMostProbeBytes, deadline_).value();
  }
  void leave(int rank) { next_to_it_.at(rank).played.reset(); }
  SegmentLayout layout() const { return {n_ranks_, 4096}; }
  std::uint64_t n_bytes() const { return layout().n_bytes(); }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  struct Next {
    KeyedSocket real;
    UniqueFd played;
    SealedMessages messages{{}};  // of keys that are the same in both directions
  };

  void play(int rank) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    Next& next = next_to_it_[rank];
    next.real.fd = UniqueFd(ends[0]);
    next.played = UniqueFd(ends[1]);
  }

  Clock::time_point deadline_ = Clock::now() + std::chrono::seconds(10);
  int n_ranks_;
  std::map<int, Next> next_to_it_;
  ShmProbeOptions options_;
  std::vector<std::string> warnings_;
  std::optional<Result<ShmProbeResult>> result_;
  std::thread thread_;
};

// What lies in memory from an earlier trial, or in memory that is new, proves nothing.
TEST(ShmProbe, NoNonceComesTwice) {
  std::vector<Nonce> nonces{Nonce{}};
  for (int i = 0; i < 2; ++i) {
    Trial leader(0);
    Trial member(1);
    const auto offer = decode_offer(leader.hear());
    member.say(encode(offer.value()));
    nonces.push_back(offer.value().nonce);
    nonces.push_back(decode_answer(member.hear()).value().nonce);
    leader.leave();
    member.leave();
  }
  std::sort(nonces.begin(), nonces.end());
  EXPECT_EQ(std::adjacent_find(nonces.begin(), nonces.end()), nonces.end());
}

TEST(ShmProbe, AMemberWhoseMemoryIsAnotherIsFoundOutByTheLeader) {
  Trial trial(0);
  const auto offer = decode_offer(trial.hear());
  ASSERT_TRUE(offer.ok());
  EXPECT_EQ(offer.value().n_bytes, trial.n_bytes());
  ProbeAnswer answer;
  answer.rank = 1;
  answer.ok = true;  // but nothing is written anywhere
  answer.nonce.fill(std::byte{1});
  trial.say(encode(answer));
  EXPECT_TRUE(decode_verdict(trial.hear()).value().ranks.empty());
  EXPECT_FALSE(trial.finish().value().shared);
  ASSERT_EQ(trial.warnings().size(), 1U);
  EXPECT_TRUE(contains(trial.warnings()[0], "rank 1: no shared memory"));
}

TEST(ShmProbe, ALeaderWhoseMemoryIsAnotherIsFoundOutByTheMember) {
  Trial trial(1);
  const auto other = ShmSegment::create(trial.n_bytes());
  ProbeOffer offer{other.value().path(), trial.n_bytes(), {}, "", ""};
  offer.nonce.fill(std::byte{1});  // which is not in it
  trial.say(encode(offer));
  const auto answer = decode_answer(trial.hear());
  ASSERT_TRUE(answer.ok());
  EXPECT_FALSE(answer.value().ok);
  EXPECT_TRUE(contains(answer.value().reason, "other memory"));
  trial.say(encode(ProbeVerdict{{0, 1}, false, ""}));  // and believes it all the same
  EXPECT_EQ(trial.finish().status().kind(), ErrorKind::kInternal);
}

std::size_t n_bytes_of(const std::vector<ShmExtent>& extents) {
  return std::accumulate(extents.begin(), extents.end(), std::size_t{0},
                         [](std::size_t sum, const ShmExtent& each) { return sum + each.n_bytes; });
}

std::size_t allocated_bytes(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
  return static_cast<std::size_t>(info.st_blocks) * 512;
}

// So that it lies in the memory that is near the member.
TEST(ShmProbe, ALeaderAllocatesItsOwnPartOnly) {
  Trial trial(0);
  const auto offer = decode_offer(trial.hear());
  ASSERT_TRUE(offer.ok());
  EXPECT_EQ(allocated_bytes(offer.value().path), n_bytes_of(SegmentLayout(2, 4096).owned_by(0)));
  EXPECT_LT(allocated_bytes(offer.value().path), trial.n_bytes());
  trial.leave();
}

TEST(ShmProbe, AMemberAllocatesItsPart) {
  Trial trial(1);
  const SegmentLayout layout(2, 4096);
  const auto made = ShmSegment::create_part(trial.n_bytes(), layout.owned_by(0));
  trial.say(encode(ProbeOffer{made.value().path(), trial.n_bytes(), {}, "", ""}));
  EXPECT_TRUE(decode_answer(trial.hear()).value().ok);
  EXPECT_EQ(allocated_bytes(made.value().path()), trial.n_bytes());
  trial.leave();
}

// Not a SIGBUS when it uses it.
TEST(ShmProbe, AMemberForWhosePartThereIsNoRoomSaysSo) {
  SmallFileSystem small(16);
  if (!small.is_there()) GTEST_SKIP() << "SKIPPED: mounting a small tmpfs needs root";
  Trial trial(1);
  const auto made = ShmSegment::create_part(trial.n_bytes(), SegmentLayout(2, 4096).owned_by(0), small.folder());
  ASSERT_TRUE(made.ok()) << made.status().message();
  ASSERT_TRUE(small.occupy(3 << 20));
  trial.say(encode(ProbeOffer{made.value().path(), trial.n_bytes(), {}, "", ""}));
  const auto answer = decode_answer(trial.hear());
  EXPECT_FALSE(answer.value().ok);
  EXPECT_TRUE(contains(answer.value().reason, "is too small")) << answer.value().reason;
  trial.leave();
}

TEST(ShmProbe, AVerdictAboutStrangersIsRefused) {
  Trial trial(1);
  const auto made = ShmSegment::create(trial.n_bytes());
  const ProbeOffer offer{made.value().path(), trial.n_bytes(), {}, "", ""};
  trial.say(encode(offer));
  EXPECT_TRUE(decode_answer(trial.hear()).value().ok);
  trial.say(encode(ProbeVerdict{{0, 1, 7}, false, ""}));
  EXPECT_EQ(trial.finish().status().kind(), ErrorKind::kInternal);
}

TEST(ShmProbe, ALeaderOrMemberThatLeavesIsNamed) {
  for (const int real : {0, 1}) {
    Trial trial(real);
    trial.leave();
    EXPECT_EQ(trial.finish().status().kind(), ErrorKind::kRanksLost);
    EXPECT_TRUE(contains(trial.finish().status().message(), "rank " + std::to_string(1 - real)));
  }
}

// Rank 2 waits for rank 0's verdict and has no connection with rank 1 open that could tell it anything.
TEST(ShmProbe, AMemberThatDiesIsNamedToTheOthers) {
  Trial trial(1);
  const auto made = ShmSegment::create(trial.n_bytes());
  trial.say(encode(ProbeOffer{made.value().path(), trial.n_bytes(), {}, "", ""}));
  EXPECT_TRUE(decode_answer(trial.hear()).value().ok);
  trial.say(encode(ProbeVerdict{{}, false, "rank 7 ended the connection (so says rank 0)"}));
  EXPECT_EQ(trial.finish().status().kind(), ErrorKind::kRanksLost);
  EXPECT_EQ(trial.finish().status().message(), "rank 7 ended the connection (so says rank 0)");
}

TEST(ShmProbe, ALeaderSaysWhyItGivesUp) {
  Trial trial(0);
  EXPECT_TRUE(decode_offer(trial.hear()).ok());
  trial.say(encode(ProbeOffer{}));  // no answer
  EXPECT_FALSE(trial.finish().ok());
  EXPECT_EQ(decode_verdict(trial.hear()).value().failure, trial.finish().status().message() + " (so says rank 0)");
}

// Of 20 ranks, rank 4 is between 0, and 5 and 6; rank 7 is below 6.
class ProbeInATree : public testing::Test {
 protected:
  void offer() {
    trial_.say(0, encode(ProbeOffer{made_.value().path(), trial_.n_bytes(), {}, "", ""}));
    for (const int child : {5, 6}) EXPECT_EQ(decode_offer(trial_.hear(child)).value().path, made_.value().path());
    EXPECT_EQ(decode_answer(trial_.hear(0)).value().rank, 4U);
  }
  static std::vector<std::byte> answer_of(std::uint32_t rank) {
    ProbeAnswer answer;
    answer.rank = rank;
    answer.ok = true;
    return encode(answer);
  }
  const std::string& failure() { return trial_.finish().status().message(); }

  Trial trial_{4, 20};
  Result<ShmSegment> made_ = ShmSegment::create_part(trial_.n_bytes(), trial_.layout().owned_by(0));
};

TEST_F(ProbeInATree, ARankHandsOnWhatComes) {
  offer();
  for (const auto& [child, rank] : std::vector<std::pair<int, int>>{{6, 7}, {5, 5}, {6, 6}}) {
    trial_.say(child, answer_of(static_cast<std::uint32_t>(rank)));
    EXPECT_EQ(decode_answer(trial_.hear(0)).value().rank, static_cast<std::uint32_t>(rank));
  }
  trial_.say(0, encode(ProbeVerdict{{0, 4, 6}, true, ""}));
  for (const int child : {5, 6}) EXPECT_EQ(decode_verdict(trial_.hear(child)).value().ranks.size(), 3U);
  const ShmProbeResult& result = trial_.finish().value();
  EXPECT_EQ(result.ranks, (std::vector<int>{0, 4, 6}));
  EXPECT_TRUE(result.needs_few_sockets);
}

TEST_F(ProbeInATree, ThatOneIsLostIsToldToAll) {
  offer();
  trial_.leave(6);
  EXPECT_EQ(failure(), "rank 6 ended the connection");
  EXPECT_EQ(decode_answer(trial_.hear(0)).value().failure, "rank 6 ended the connection (so says rank 4)");
  EXPECT_EQ(decode_verdict(trial_.hear(5)).value().failure, "rank 6 ended the connection (so says rank 4)");
}

// While it waits for the answers of those below it.
TEST_F(ProbeInATree, ThatTheLeaderGivesUpIsToldToThoseBelow) {
  offer();
  trial_.say(0, encode(ProbeVerdict{{}, false, "rank 9 ended (so says rank 0)"}));
  EXPECT_EQ(failure(), "rank 9 ended (so says rank 0)");
  for (const int child : {5, 6}) EXPECT_EQ(decode_verdict(trial_.hear(child)).value().failure, failure());
}

TEST_F(ProbeInATree, BeforeTheOfferToo) {
  trial_.leave(0);
  EXPECT_EQ(failure(), "rank 0 ended the connection");
  for (const int child : {5, 6})
    EXPECT_EQ(decode_offer(trial_.hear(child)).value().failure, failure() + " (so says rank 4)");
}

TEST_F(ProbeInATree, ARankAnswersForThoseBelowItOnly) {
  offer();
  trial_.say(5, answer_of(7));
  EXPECT_EQ(failure(), "rank 5 answers for rank 7");
}

TEST(HostLinks, TheTreeOfTheProbeIsOfLinks) {
  for (int n = 2; n <= 600; ++n) {
    int n_reached = 1;
    for (int place = 0; place < n; ++place) {
      for (const int child : children_of(place, n)) {
        ++n_reached;
        ASSERT_TRUE(are_linked(place, child, n) && are_linked(child, place, n)) << child << " of " << n;
        ASSERT_TRUE(is_below(child, place, n) && !is_below(place, child, n));
      }
    }
    ASSERT_EQ(n_reached, n);
  }
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

TEST(ShmProbe, DifferentNumbersOfLanesAreAMismatchForAll) {
  TestJob job(2);
  for (const auto& each : job.join([](BootstrapOptions& options) { options.n_lanes = options.rank == 0 ? 2 : 5; })) {
    EXPECT_EQ(each.status().kind(), ErrorKind::kMismatch);
    EXPECT_TRUE(contains(each.status().message(), "CIRANDA_NUM_LANES, or num_lanes of init(), is "));
  }
}

TEST(ShmProbe, DifferentNumbersOfSocketsAreAMismatchForAll) {
  TestJob job(2);
  for (const auto& each : job.join([](BootstrapOptions& options) { options.n_sockets = options.rank == 0 ? 2 : 1; })) {
    EXPECT_EQ(each.status().kind(), ErrorKind::kMismatch);
    EXPECT_TRUE(contains(each.status().message(), "CIRANDA_SOCKETS, or the number of interfaces, is "))
        << each.status().message();
  }
}

TEST(ShmProbe, DifferentLevelsOfTheWireAreAMismatchForAll) {
  TestJob job(2);
  for (const auto& each : job.join([](BootstrapOptions& options) { options.wire = options.rank == 0 ? "none" : ""; })) {
    EXPECT_EQ(each.status().kind(), ErrorKind::kMismatch);
    EXPECT_TRUE(contains(each.status().message(), "CIRANDA_WIRE is ")) << each.status().message();
  }
}

TEST(ShmProbe, RelaysThatOnlySomeUseAreAMismatchForAll) {
  TestJob job(3);
  for (const auto& each : job.join([](BootstrapOptions& options) { options.uses_relays = options.rank != 1; })) {
    EXPECT_EQ(each.status().kind(), ErrorKind::kMismatch);
    EXPECT_TRUE(contains(each.status().message(), "CIRANDA_RELAYS is ")) << each.status().message();
  }
}

TEST(ShmProbe, AlgorithmsThatDifferAreAMismatchForAll) {
  TestJob job(2);
  for (const auto& each :
       job.join([](BootstrapOptions& options) { options.algorithm = options.rank == 0 ? "one-shot" : ""; })) {
    EXPECT_EQ(each.status().kind(), ErrorKind::kMismatch);
    EXPECT_TRUE(contains(each.status().message(), "CIRANDA_ALGORITHM is '")) << each.status().message();
  }
}

TEST(ShmProbe, WireTypesThatDifferAreAMismatchForAll) {
  TestJob job(2);
  for (const auto& each :
       job.join([](BootstrapOptions& options) { options.wire_dtype = options.rank == 0 ? "bf16" : ""; })) {
    EXPECT_EQ(each.status().kind(), ErrorKind::kMismatch);
    EXPECT_TRUE(contains(each.status().message(), "CIRANDA_WIRE_DTYPE is '")) << each.status().message();
  }
}

TEST(ShmProbe, OneShotBytesThatDifferAreAMismatchForAll) {
  TestJob job(2);
  for (const auto& each : job.join([](BootstrapOptions& options) { options.one_shot_bytes = options.rank - 1; })) {
    EXPECT_EQ(each.status().kind(), ErrorKind::kMismatch);
    EXPECT_TRUE(contains(each.status().message(), "CIRANDA_ONE_SHOT_BYTES is ")) << each.status().message();
  }
}

TEST(ShmProbe, SegmentsThatDifferAreAMismatchForAll) {
  TestJob job(2);
  for (const auto& each : job.join([](BootstrapOptions& options) { options.segment_bytes = options.rank * 4096; })) {
    EXPECT_EQ(each.status().kind(), ErrorKind::kMismatch);
    EXPECT_TRUE(contains(each.status().message(), "CIRANDA_SEGMENT_BYTES is ")) << each.status().message();
  }
}

TEST(ShmProbe, TrialsThatOnlySomeMakeAreAMismatchForAll) {
  TestJob job(2);
  for (const auto& each : job.join([](BootstrapOptions& options) { options.autotune = options.rank == 0; })) {
    EXPECT_EQ(each.status().kind(), ErrorKind::kMismatch);
    EXPECT_TRUE(contains(each.status().message(), "CIRANDA_AUTOTUNE is ")) << each.status().message();
  }
}

TEST(Bootstrap, AllKnowWhatEachHasMeasured) {
  TestJob job(3);
  HostCosts slow;
  slow.link_fs *= 2;
  const auto meshes = job.join_well([&slow](BootstrapOptions& options) {
    options.autotune = false;
    if (options.rank == 1) options.costs = slow;
  });
  for (const auto& mesh : meshes) {
    EXPECT_FALSE(mesh->peer(0).costs);
    EXPECT_EQ(mesh->peer(1).costs, slow);
    EXPECT_FALSE(mesh->peer(2).costs);
    EXPECT_GT(mesh->peer(2).n_cores, 0);
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
