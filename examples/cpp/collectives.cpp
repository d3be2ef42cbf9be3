// Every collective once in C++, each with a check of what came out. Run it with:  ciranda run -np 3 ./collectives_cpp
//
// Exit code: 0 if all results are right on this rank, 1 otherwise.
#include <ciranda/ciranda.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <numeric>
#include <span>
#include <vector>

namespace {

using ciranda::Context;
using Numbers = std::vector<std::int32_t>;

int n_wrong = 0;

void expect(bool is_right, const char* what) {
  if (is_right) return;
  std::fprintf(stderr, "wrong: %s\n", what);
  ++n_wrong;
}

Numbers content(const auto& result) { return {result.values().begin(), result.values().end()}; }

// 100 times the rank, and where it goes: one row for each rank.
Numbers row_for_each(const Context& world) {
  Numbers rows(static_cast<std::size_t>(world.size()));
  std::iota(rows.begin(), rows.end(), 100 * world.rank());
  return rows;
}

// What `row` of row_for_each() adds up to.
std::int32_t sum_of(const Context& world, int row) {
  const int n = world.size();
  return 100 * n * (n - 1) / 2 + n * row;
}

void reductions(Context& world) {
  const Numbers rows = row_for_each(world);
  Numbers sums = rows;
  world.allreduce(std::span(sums), {.name = "sums"});
  bool is_right = true;
  for (int row = 0; row < world.size(); ++row) {
    is_right &= sums[static_cast<std::size_t>(row)] == sum_of(world, row);
  }
  expect(is_right, "allreduce");

  // Each rank's share of the rows, and all of them on one rank.
  const auto mine = world.reducescatter(std::span(rows), {.name = "my sum"});
  expect(content(mine) == Numbers{sum_of(world, world.rank())}, "reducescatter");
  Numbers at_root = rows;
  world.reduce(std::span(at_root), {.name = "sums at the root", .root = 0});
  expect(at_root == (world.rank() == 0 ? sums : rows), "reduce");

  // Each rank gets the sum up to its own: where its part begins, if it takes its own off.
  Numbers ends{world.rank() + 1};
  world.scan(std::span(ends), {.name = "ends"});
  expect(ends.front() == (world.rank() + 1) * (world.rank() + 2) / 2, "scan");

  // Ranks that bring batches of 1, 2, ... examples: the average over the examples, not over the ranks.
  const double batch = world.rank() + 1;
  std::vector<double> loss{batch};
  world.allreduce(std::span(loss), {.name = "loss", .op = ciranda::ReduceOp::kAverage, .weight = batch});
  const double expected = (2.0 * world.size() + 1) / 3;
  expect(loss[0] > expected - 1e-12 && loss[0] < expected + 1e-12, "weighted allreduce");
}

void movements(Context& world) {
  const int n = world.size();
  const int rank = world.rank();
  Numbers word(3, rank == n - 1 ? 7 : 0);
  world.broadcast(std::span(word), {.name = "word", .root = n - 1});
  expect(word == Numbers(3, 7), "broadcast");

  // Rank r has r rows.
  const Numbers some(static_cast<std::size_t>(rank), rank);
  Numbers all;
  for (int from = 0; from < n; ++from) all.insert(all.end(), static_cast<std::size_t>(from), from);
  expect(content(world.allgather(std::span(some), {.name = "all"})) == all, "allgather");
  const auto gathered = world.gather(std::span(some), {.name = "all at the root", .root = 0});
  expect(content(gathered) == (rank == 0 ? all : Numbers{}), "gather");
  std::vector<std::int64_t> splits(static_cast<std::size_t>(n));
  std::iota(splits.begin(), splits.end(), 0);
  const auto back = world.scatter(gathered.values(), {.name = "back", .root = 0, .splits = splits});
  expect(content(back) == some, "scatter");

  // Row r goes to rank r.
  const Numbers rows = row_for_each(world);
  const auto turned = world.alltoall(std::span(rows), {.name = "turned"});
  Numbers expected;
  for (int from = 0; from < n; ++from) expected.push_back(100 * from + rank);
  expect(content(turned) == expected, "alltoall");
  expect(turned.received().size() == static_cast<std::size_t>(n) && turned.received()[0] == 1, "received splits");

  // Around the ring. Both at once: a rank that first sent and then received could wait for ever.
  Numbers from_left(1);
  ciranda::Operation sent =
      world.size() > 1 ? world.send_async(std::span(rows).first(1), (rank + 1) % n, "ring") : ciranda::Operation();
  if (n > 1) world.receive(std::span(from_left), (rank + n - 1) % n, "ring");
  expect(n == 1 || from_left[0] == 100 * ((rank + n - 1) % n), "send and receive");
  world.barrier();
}

// One operation of tensors of several types: all of them or none.
void groups(Context& world) {
  Numbers counts{world.rank(), 1};
  std::vector<float> values(5, 1.5F);
  ciranda::Group group;
  group.add(std::span(counts)).add(std::span(values));
  ciranda::Operation operation = world.group_async(ciranda::Collective::kAllreduce, group, {.name = "group"});
  operation.wait();
  const auto n = static_cast<std::int32_t>(world.size());
  expect(counts == Numbers{n * (n - 1) / 2, n}, "grouped allreduce of integers");
  expect(values == std::vector<float>(5, 1.5F * static_cast<float>(n)), "grouped allreduce of floats");

  ciranda::Group parts;
  parts.add(std::span<const std::int32_t>(counts)).add(std::span<const float>(values), {5});
  const ciranda::Results all = world.group(ciranda::Collective::kAllgather, parts, {.name = "parts"});
  expect(all.values<std::int32_t>(0).size() == static_cast<std::size_t>(2 * n), "grouped allgather of integers");
  expect(all.shape(1)[0] == n && all.shape(1)[1] == 5, "grouped allgather of rows");
}

// Calls on two lanes have nothing to do with each other: ranks may make them in different orders, even without names.
void lanes(Context& world) {
  Numbers first{1};
  Numbers second{10};
  const auto start = [&](Numbers& numbers, std::uint32_t lane) {
    return world.allreduce_async(std::span(numbers), {.at = {.lane = lane}});
  };
  const bool is_even = world.rank() % 2 == 0;
  ciranda::Operation one = is_even ? start(first, 0) : start(second, 1);
  ciranda::Operation other = is_even ? start(second, 1) : start(first, 0);
  one.wait();
  other.wait();
  expect(first[0] == world.size() && second[0] == 10 * world.size(), "allreduce on two lanes");
}

// A part of the ranks by themselves. Every rank takes part in making and removing the set.
void process_sets(Context& world) {
  if (world.size() < 2) return;
  std::vector<std::int64_t> ranks;
  for (int rank = 0; rank + 1 < world.size(); ++rank) ranks.push_back(rank);
  const std::uint32_t but_one = world.add_process_set(ranks);
  if (world.rank() + 1 < world.size()) {
    Numbers count{1};
    world.allreduce(std::span(count), {.name = "count", .at = {.process_set = but_one}});
    expect(count[0] == world.size() - 1, "allreduce in a process set");
  }
  world.remove_process_set(but_one);
}

// Ranks with different numbers of batches: who has no more joins, and counts for nothing until all have.
void uneven_batches(Context& world) {
  for (int batch = 0; batch <= world.rank(); ++batch) {
    std::vector<double> gradient{static_cast<double>(batch)};
    world.allreduce(std::span(gradient), {.name = "gradient", .op = ciranda::ReduceOp::kAverage});
    expect(gradient[0] == batch, "average of those that have not joined");
    std::vector<double> over_all{static_cast<double>(world.size())};
    world.allreduce(std::span(over_all),
                    {.name = "over all", .op = ciranda::ReduceOp::kAverage, .divide_by_all = true});
    const double error = over_all[0] - (world.size() - batch);
    expect(error < 1e-12 && error > -1e-12, "average over all");
  }
  const int last = world.join();
  expect(last >= 0 && last < world.size(), "join");
}

}  // namespace

int main() {
  try {
    Context world(Context::Settings{{"CIRANDA_NUM_LANES", "2"}});
    reductions(world);
    movements(world);
    groups(world);
    lanes(world);
    process_sets(world);
    uneven_batches(world);
    std::printf("rank %d of %d: every collective %s\n", world.rank(), world.size(), n_wrong == 0 ? "is right" : "?");
    return n_wrong == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
