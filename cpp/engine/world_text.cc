#include "engine/world_text.hpp"

#include <array>
#include <cstdio>
#include <map>

#include "base/list_ranks.hpp"
#include "base/size_text.hpp"

namespace ciranda {
namespace {

constexpr std::size_t kSmallestBytes = 4;
constexpr std::size_t kLargestBytes = std::size_t{64} << 20U;
constexpr std::size_t kFactor = 4;

std::string taken_text(double seconds) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3f s", seconds);
  return text.data();
}

std::string counted(std::uint64_t n, std::string_view what) {
  return std::to_string(n) + " " + std::string(what) + (n == 1 ? "" : "s");
}

// In the order of their first ranks. Hosts are told apart by their names.
std::vector<std::vector<int>> ranks_by_host(const Mesh& mesh) {
  std::vector<std::vector<int>> found;
  std::map<std::string, std::size_t> place;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const auto [host, is_new] = place.try_emplace(mesh.peer(rank).host, found.size());
    if (is_new) found.emplace_back();
    found[host->second].push_back(rank);
  }
  return found;
}

std::string links_text(const Mesh& mesh, const std::string& wire) {
  std::vector<int> by_memory;
  std::vector<int> by_tcp;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    if (rank != mesh.rank()) (mesh.peer(rank).shares_memory ? by_memory : by_tcp).push_back(rank);
  }
  std::string text;
  if (!by_memory.empty()) text += "; shared memory with " + list_ranks(by_memory);
  if (!by_tcp.empty()) text += "; TCP (" + wire + ") with " + list_ranks(by_tcp);
  return text;
}

}  // namespace

std::string joined_text(const Mesh& mesh, const Config& config, std::uint64_t epoch, double seconds) {
  const PeerInfo& me = mesh.peer(mesh.rank());
  std::string text = "joined world " + std::to_string(epoch);
  if (!config.job.empty()) text += " of job " + config.job;
  text += " in " + taken_text(seconds) + ": rank " + std::to_string(mesh.rank()) + " of " +
          std::to_string(mesh.size()) + ", local rank " + std::to_string(config.local_rank) + " of " +
          std::to_string(config.local_size) + ", pid " + std::to_string(me.pid) + ", on " +
          counted(ranks_by_host(mesh).size(), "host");
  if (!me.address.empty()) text += ", at " + me.address;
  return text + links_text(mesh, config.wire);
}

std::vector<std::string> host_texts(const Mesh& mesh) {
  std::vector<std::string> texts;
  for (const std::vector<int>& ranks : ranks_by_host(mesh)) {
    const PeerInfo& first = mesh.peer(ranks.front());
    std::string text = "host " + first.host + ": " + list_ranks(ranks);
    if (first.n_cores > 0) text += ", " + counted(static_cast<std::uint64_t>(first.n_cores), "core");
    if (!first.address.empty()) text += ", the first at " + first.address;
    texts.push_back(std::move(text));
  }
  return texts;
}

std::string ways_text(const std::function<std::string(std::size_t n_bytes)>& way_of) {
  std::string text = "an allreduce goes by ";
  std::string way = way_of(kSmallestBytes);
  std::size_t last = kSmallestBytes;
  bool has_others = false;
  for (std::size_t n_bytes = kSmallestBytes; n_bytes <= kLargestBytes; n_bytes *= kFactor) {
    std::string next = way_of(n_bytes);
    if (next != way) {
      has_others = true;
      text += way + " up to " + size_text(last) + ", by ";
      way = std::move(next);
    }
    last = n_bytes;
  }
  return text + way + (has_others ? " above" : "");
}

std::string set_text(std::uint32_t id, const std::vector<int>& ranks) {
  return "process set " + std::to_string(id) + " was added: " + list_ranks(ranks);
}

std::string left_text(const CounterPage& page, double seconds) {
  std::uint64_t n_calls = 0;
  std::uint64_t n_failed = 0;
  std::uint64_t n_bytes = 0;
  for (const auto& of_collective : page.calls) {
    for (const CallCounters& each : of_collective) {
      n_calls += each.direct.load(std::memory_order_relaxed) + each.others.load(std::memory_order_relaxed);
      n_failed += each.failed.load(std::memory_order_relaxed);
      n_bytes += each.n_bytes.load(std::memory_order_relaxed);
    }
  }
  std::string text = "left the world after " + taken_text(seconds) + ": " + counted(n_calls, "call");
  if (n_failed > 0) text += ", of which " + std::to_string(n_failed) + " failed";
  return text + ", " + size_text(n_bytes) + ", " + counted(page.steps.load(std::memory_order_relaxed), "step");
}

}  // namespace ciranda
