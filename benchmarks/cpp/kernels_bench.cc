// Measures reduce(): bytes read and written per second, by SIMD level, element type, number of inputs and tensor size.
// "memcpy" is the machine's limit, counted in the same way. Run:
//   kernels_bench --benchmark_filter=float32
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/kernels.hpp"

namespace {

using ciranda::DataType;
using ciranda::ReduceOp;
using ciranda::Reduction;
using ciranda::kernels::SimdLevel;

struct Free {
  void operator()(std::byte* bytes) const { std::free(bytes); }
};
using Tensor = std::unique_ptr<std::byte, Free>;

// The memory is page-aligned and touched; bytes of 0x3C are an ordinary small number in every type.
Tensor make_tensor(std::size_t n_bytes) {
  Tensor tensor(static_cast<std::byte*>(std::aligned_alloc(4096, n_bytes)));
  std::memset(tensor.get(), 0x3C, n_bytes);
  return tensor;
}

void count_bytes(benchmark::State& state, std::size_t n_streams, std::size_t n_bytes) {
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(n_streams * n_bytes));
}

struct Case {
  SimdLevel level;
  Reduction reduction;
  std::size_t n_inputs;
  std::size_t n_bytes;
  bool in_place;
};

void run_reduce(benchmark::State& state, const Case& test) {
  std::vector<Tensor> tensors;
  std::vector<const std::byte*> inputs;
  for (std::size_t k = 0; k < test.n_inputs; ++k) {
    tensors.push_back(make_tensor(test.n_bytes));
    inputs.push_back(tensors.back().get());
  }
  tensors.push_back(make_tensor(test.n_bytes));
  std::byte* out = test.in_place ? tensors.front().get() : tensors.back().get();
  const std::size_t count = test.n_bytes / size_of(test.reduction.dtype);
  const SimdLevel before = ciranda::kernels::active_simd_level();
  ciranda::kernels::set_simd_level(test.level);
  for (auto _ : state) {
    ciranda::kernels::reduce(test.reduction, inputs, out, count);
    benchmark::ClobberMemory();
  }
  ciranda::kernels::set_simd_level(before);
  count_bytes(state, test.n_inputs + 1, test.n_bytes);
}

void run_memcpy(benchmark::State& state, std::size_t n_bytes) {
  const Tensor from = make_tensor(n_bytes);
  const Tensor to = make_tensor(n_bytes);
  for (auto _ : state) {
    std::memcpy(to.get(), from.get(), n_bytes);
    benchmark::ClobberMemory();
  }
  count_bytes(state, 2, n_bytes);
}

std::string size_name(std::size_t n_bytes) {
  return n_bytes >= (1U << 20) ? std::to_string(n_bytes >> 20) + "MiB" : std::to_string(n_bytes >> 10) + "KiB";
}

std::string case_name(const Case& test) {
  return std::string(to_string(test.reduction.op)) + "/" + std::string(to_string(test.reduction.dtype)) +
         "/n=" + std::to_string(test.n_inputs) + "/" + size_name(test.n_bytes) + "/" +
         std::string(to_string(test.level)) + (test.in_place ? "/in_place" : "");
}

void register_case(const Case& test) {
  benchmark::RegisterBenchmark(case_name(test).c_str(), [test](benchmark::State& state) { run_reduce(state, test); });
}

void register_size(std::size_t n_bytes) {
  benchmark::RegisterBenchmark(("memcpy/" + size_name(n_bytes)).c_str(),
                               [n_bytes](benchmark::State& state) { run_memcpy(state, n_bytes); });
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMax}) {
      for (const std::size_t n_inputs : {std::size_t{2}, std::size_t{3}, std::size_t{4}, std::size_t{8}}) {
        if (n_inputs == 8 && op != ReduceOp::kSum) continue;
        if (n_inputs == 3 && op == ReduceOp::kMax) continue;  // 3 inputs show an average that divides, not multiplies
        for (const SimdLevel level : {SimdLevel::kBaseline, SimdLevel::kAvx2, SimdLevel::kAvx512}) {
          if (level > ciranda::kernels::best_simd_level()) continue;
          const Reduction reduction{.dtype = dtype, .op = op, .n_average = static_cast<int>(n_inputs)};
          register_case({level, reduction, n_inputs, n_bytes, false});
          if (op == ReduceOp::kSum && n_inputs == 2) register_case({level, reduction, n_inputs, n_bytes, true});
        }
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  constexpr std::size_t kKiB = 1024;
  for (const std::size_t n_bytes : {8 * kKiB, 64 * kKiB, 1024 * kKiB, 65536 * kKiB}) register_size(n_bytes);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
