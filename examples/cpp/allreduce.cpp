// Averages a vector over all ranks in C++, gathers one number from each, and checks both. Run it with:
//   ciranda run -np 2 ./allreduce_cpp
//
// Exit code: 0 if the results are right, 1 otherwise.
#include <ciranda/ciranda.hpp>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <span>
#include <vector>

namespace {

// Rank r brings r + i at place i, so that the average over n ranks there is i + (n - 1) / 2.
bool is_average(std::span<const double> averages, int size) {
  for (std::size_t i = 0; i < averages.size(); ++i) {
    if (averages[i] != static_cast<double>(i) + (size - 1) / 2.0) return false;
  }
  return true;
}

bool run(ciranda::Context& world) {
  std::vector<double> values(1024);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i) + world.rank();
  world.allreduce(std::span(values), {.name = "values", .op = ciranda::ReduceOp::kAverage});

  const std::vector<int> mine{world.rank()};
  const auto ranks = world.allgather(std::span(mine));
  bool in_order = ranks.values().size() == static_cast<std::size_t>(world.size());
  for (std::size_t i = 0; in_order && i < ranks.values().size(); ++i) {
    in_order = ranks.values()[i] == static_cast<int>(i);
  }
  return in_order && is_average(values, world.size());
}

}  // namespace

int main() {
  try {
    ciranda::Context world;
    const bool right = run(world);
    std::printf("rank %d of %d: the average and the gathered ranks are %s\n", world.rank(), world.size(),
                right ? "right" : "WRONG");
    return right ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
