#include "membership/rank_process.hpp"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "membership/bootstrap_messages.hpp"
#include "membership/host_identity.hpp"
#include "membership/pair_connector.hpp"
#include "membership/store_client.hpp"
#include "membership/test_job.hpp"
#include "transport/socket.hpp"

namespace ciranda {
namespace {

constexpr const char* kFlag = "--as-rank";
constexpr unsigned kLongestLifeSeconds = 120;

[[noreturn]] void wait_for_ever() {
  for (;;) {
    pause();
  }
}

void say_to_rank_0(Mesh& mesh, std::span<const std::byte> bytes) {
  mesh.control(0).write_some(bytes);
  mesh.notify();
}

void answer_once(Mesh& mesh) {
  std::byte byte{};
  sleep_until(mesh, [&] { return mesh.control(0).read_some({&byte, 1}) == 1; });
  say_to_rank_0(mesh, {&byte, 1});
}

void have_a_child(Mesh& mesh) {
  const pid_t child = fork();  // this process has one thread
  if (child == 0) {
    alarm(kLongestLifeSeconds);
    wait_for_ever();
  }
  say_to_rank_0(mesh, std::as_bytes(std::span(&child, 1)));
}

Endpoint endpoint_of_nobody() {
  Endpoint endpoint;
  endpoint.pid = static_cast<std::uint32_t>(getpid());
  endpoint.tries_shared_memory = true;
  endpoint.slot_bytes = kTestSlotBytes;
  endpoint.n_sockets = 1;
  endpoint.host = kTestHost;
  endpoint.host_id = "id";
  endpoint.machine = identify_host("/dev/shm").machine;
  endpoint.addresses = {"127.0.0.1:1"};
  return endpoint;
}

Status connect_to_rank_0(const RankPlan& plan, const std::string& address, WaitLimit limit) {
  PairConnectorOptions options;
  options.credentials = {test_secret(), kTestJobName, 1};
  options.rank = plan.rank;
  options.limit = std::move(limit);
  options.peers.resize(static_cast<std::size_t>(plan.size));
  options.peers[0].addresses = {SocketAddress::parse(address).value()};
  auto listener = listen_on(SocketAddress::parse("127.0.0.1:0").value(), {});
  std::vector<UniqueFd> listeners;
  listeners.push_back(std::move(listener).value());
  auto connector = PairConnector::create(std::move(listeners), std::move(options));
  return connector.ok() ? connector.value()->connect(Role::kControl, {0}) : connector.status();
}

int end_early(const RankPlan& plan) {
  const Credentials credentials{test_secret(), kTestJobName, 0};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  auto store = StoreClient::connect({plan.store}, credentials, plan.rank, deadline);
  if (!store.ok()) {
    return 1;
  }
  const auto blobs = store.value().exchange("epoch 1", plan.size, encode(endpoint_of_nobody()), deadline);
  if (!blobs.ok() || plan.life == Life::kNeverConnects) {
    return blobs.ok() ? 0 : 1;
  }
  return connect_to_rank_0(plan, decode_endpoint(blobs.value()[0]).value().addresses.front(), deadline).ok() ? 0 : 1;
}

// From now on the system says to this process that it has no descriptors of processes.
void forgo_process_descriptors() {
  std::array<sock_filter, 4> filter{{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                                     BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
                                     BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
                                     BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)}};
  const sock_fprog program{filter.size(), filter.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    std::abort();
  }
}

void send_data(Mesh& mesh) {
  const std::byte byte{9};
  sleep_until(mesh, [&] { return mesh.data(0).write_some({&byte, 1}) == 1; });
}

[[noreturn]] void look_on(Mesh& mesh) {
  for (;;) {
    sleep_until(mesh, [] { return false; });
  }
}

int live(const RankPlan& plan) {
  if (plan.life == Life::kNeverConnects || plan.life == Life::kMeetsRank0) {
    return end_early(plan);
  }
  BootstrapOptions options = test_options(plan.rank, plan.size, plan.store);
  options.use_shared_memory = plan.memory != Memory::kNotShared;
  if (plan.memory == Memory::kSharedWithSockets) forgo_process_descriptors();
  options.warn = [](const std::string&) {};
  const auto mesh = join_world(options);
  if (!mesh.ok()) {
    return 1;
  }
  if (plan.rank != 0) {
    const std::byte joined{1};
    say_to_rank_0(*mesh.value(), {&joined, 1});
  }
  if (plan.life == Life::kAnswersOnce) {
    answer_once(*mesh.value());
  } else if (plan.life == Life::kForksAndWaits) {
    have_a_child(*mesh.value());
  } else if (plan.life == Life::kSendsData) {
    send_data(*mesh.value());
    look_on(*mesh.value());
  } else if (plan.life == Life::kLooksOn) {
    look_on(*mesh.value());
  }
  wait_for_ever();
}

std::vector<std::string> to_arguments(const RankPlan& plan) {
  return {"/proc/self/exe",
          kFlag,
          std::to_string(plan.rank),
          std::to_string(plan.size),
          plan.store,
          std::to_string(static_cast<int>(plan.memory)),
          std::to_string(static_cast<int>(plan.life)),
          std::to_string(getpid())};
}

RankPlan plan_from(std::span<char* const> arguments) {
  return {std::atoi(arguments[2]), std::atoi(arguments[3]), arguments[4], static_cast<Memory>(std::atoi(arguments[5])),
          static_cast<Life>(std::atoi(arguments[6]))};
}

}  // namespace

RankProcess::RankProcess(const RankPlan& plan) {
  std::vector<std::string> arguments = to_arguments(plan);
  std::vector<char*> argv;
  for (std::string& each : arguments) {
    argv.push_back(each.data());
  }
  argv.push_back(nullptr);
  EXPECT_EQ(posix_spawn(&pid_, argv[0], nullptr, nullptr, argv.data(), environ), 0);
}

RankProcess::~RankProcess() {
  if (pid_ > 0) {
    send_signal(SIGKILL);
    wait();
  }
}

void RankProcess::send_signal(int signal) const { EXPECT_EQ(::kill(pid_, signal), 0); }

void RankProcess::wait() {
  EXPECT_EQ(waitpid(pid_, nullptr, 0), pid_);
  pid_ = -1;
}

}  // namespace ciranda

int main(int argc, char** argv) {
  const std::span<char* const> arguments(argv, static_cast<std::size_t>(argc));
  if (argc == 8 && std::strcmp(argv[1], ciranda::kFlag) == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return getppid() == std::atoi(argv[7]) ? ciranda::live(ciranda::plan_from(arguments)) : 1;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
