#include "backend/cuda/checksums.hpp"

#include <cstring>

#include "backend/cuda/kernels/launches.hpp"
#include "base/checksum.hpp"

namespace ciranda::cuda {
namespace {

std::size_t piece_bytes(const ByteRanges& ranges) { return ranges.size() * sizeof(Piece); }
std::size_t total_bytes(const ByteRanges& ranges) { return ranges.size() * sizeof(std::uint64_t); }

CUdeviceptr number_of(const std::byte* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

std::uint64_t describe_ranges(const ByteRanges& ranges, CUdeviceptr totals, std::byte* block) {
  std::vector<Piece> pieces;
  for (const auto& range : ranges) {
    void* const total = reinterpret_cast<std::uint64_t*>(totals) + pieces.size();
    pieces.push_back({range.data(), total, range.size(), 0});
  }
  const std::uint64_t n_chunks = number_chunks(pieces, kChecksumChunkBytes);
  std::memcpy(block, pieces.data(), piece_bytes(ranges));
  return n_chunks;
}

Status queue_steps(const GpuParts& gpu, CUstream stream, const ByteRanges& ranges, CUdeviceptr totals,
                   std::byte* block) {
  const GpuContext& context = gpu.context;
  const CUresult cleared = context.driver.cuMemsetD8Async(totals, 0, total_bytes(ranges), stream);
  if (Status status = context.check(cleared, "cuMemsetD8Async"); !status.ok()) return status;
  const std::uint64_t n_chunks = describe_ranges(ranges, totals, block);
  Status status = gpu.kernels->checksum({reinterpret_cast<const Piece*>(block), ranges.size(), n_chunks}, stream);
  if (!status.ok()) return status;
  const CUresult copied =
      context.driver.cuMemcpyAsync(number_of(block + piece_bytes(ranges)), totals, total_bytes(ranges), stream);
  return context.check(copied, "cuMemcpyAsync");
}

}  // namespace

std::size_t checksum_block_bytes(const ByteRanges& ranges) { return piece_bytes(ranges) + total_bytes(ranges); }

// The totals are in the GPU's memory, where additions of many threads are quick.
Result<std::shared_ptr<const Event>> queue_checksums(const GpuParts& gpu, CUstream stream, const ByteRanges& ranges,
                                                     std::byte* block) {
  CUdeviceptr totals = 0;
  const CUresult allocated = gpu.context.driver.cuMemAllocAsync(&totals, total_bytes(ranges), stream);
  if (Status status = gpu.context.check(allocated, "cuMemAllocAsync"); !status.ok()) return status;
  Status status = queue_steps(gpu, stream, ranges, totals, block);
  gpu.context.driver.cuMemFreeAsync(totals, stream);
  if (status.ok()) return gpu.events.record(stream);
  gpu.context.driver.cuStreamSynchronize(stream);
  return status;
}

std::vector<std::uint64_t> checksums_in(const std::byte* block, const ByteRanges& ranges) {
  std::vector<std::uint64_t> sums(ranges.size());
  std::memcpy(sums.data(), block + piece_bytes(ranges), total_bytes(ranges));
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = checksum_of_total(sums[i], ranges[i].size());
  return sums;
}

Result<std::vector<std::uint64_t>> checksums_by_host(const GpuParts& gpu, CUstream stream, const ByteRanges& ranges) {
  std::vector<std::uint64_t> sums;
  for (const auto& range : ranges) {
    std::vector<std::byte> copy(range.size());
    if (!copy.empty()) {
      const CUresult copied =
          gpu.context.driver.cuMemcpyAsync(number_of(copy.data()), number_of(range.data()), range.size(), stream);
      if (Status status = gpu.context.check(copied, "cuMemcpyAsync"); !status.ok()) return status;
    }
    sums.push_back(checksum(copy));
  }
  return sums;
}

}  // namespace ciranda::cuda
