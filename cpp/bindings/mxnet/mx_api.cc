#include "bindings/mxnet/mx_api.hpp"

#include <algorithm>
#include <ciranda/native/symbols.hpp>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace ciranda::mxnet {

namespace {

constexpr const char* kReleaseWithKnownArrays = "1.9.1";

MxApi found;

}  // namespace

const MxApi& mx() { return found; }

bool is_naive() {
  static const char* const engine = std::getenv("MXNET_ENGINE_TYPE");  // read once, as in MXNet
  return engine != nullptr && std::string_view(engine) == "NaiveEngine";
}

std::string find_mx_api(void* library, const std::string& version) {
  using native::wanted;
  const std::string problem = native::find_symbols(
      library, "MXNet", version,
      {wanted("MXGetLastError", found.GetLastError), wanted("MXEnginePushAsyncND", found.EnginePushAsyncND),
       wanted("MXShallowCopyNDArray", found.ShallowCopyNDArray), wanted("MXNDArrayFree", found.NDArrayFree),
       wanted("MXNDArrayGetData", found.NDArrayGetData), wanted("MXNDArrayGetShapeEx64", found.NDArrayGetShapeEx64),
       wanted("MXNDArrayGetDType", found.NDArrayGetDType), wanted("MXNDArrayGetContext", found.NDArrayGetContext),
       wanted("MXNDArrayGetStorageType", found.NDArrayGetStorageType),
       wanted("MXNDArrayFromDLPackEx", found.NDArrayFromDLPackEx)});
  if (!problem.empty()) return problem;
  const std::string lacking = native::find_symbols(library, "MXNet", version,
                                                   {wanted("_ZNK5mxnet7NDArray5Chunk8IsMKLDNNEv", found.IsOneDnn),
                                                    wanted("_ZN5mxnet7NDArray5Chunk15Reorder2DefaultEv", found.Reorder),
                                                    wanted("_ZNK5mxnet7NDArray15Reorder2DefaultEv", found.Reordered),
                                                    wanted("_ZN5mxnet7NDArrayD1Ev", found.Destroy)});
  if (!lacking.empty()) found.IsOneDnn = nullptr;
  const char* const its_version =
      is_naive() ? "_ZN5mxnet6engine3Var7versionEv" : "_ZN5mxnet6engine11ThreadedVar7versionEv";
  const std::string unknown = native::find_symbols(library, "MXNet", version, {wanted(its_version, found.Version)});
  if (!unknown.empty() || version != kReleaseWithKnownArrays) found.Version = nullptr;
  return "";
}

Array share(ArrayHandle array) {
  ArrayHandle copy = nullptr;
  if (mx().ShallowCopyNDArray(array, &copy) != 0) return nullptr;
  return Array(copy);
}

std::optional<std::size_t> version_of(const void* array) {
  if (mx().Version == nullptr || memory_of(array) == nullptr) return std::nullopt;
  const auto* const memory = static_cast<const std::byte*>(memory_of(array));
  const std::size_t place = mx().IsOneDnn != nullptr ? kVariableAt : kVariableAtWithoutOneDnn;
  return mx().Version(*reinterpret_cast<const void* const*>(memory + place));
}

std::vector<ArrayHandle> one_each(const std::vector<Array>& arrays, std::vector<const void*> without) {
  std::vector<const void*> seen = std::move(without);
  std::vector<ArrayHandle> firsts;
  for (const Array& array : arrays) {
    const void* const memory = memory_of(array.get());
    if (std::find(seen.begin(), seen.end(), memory) != seen.end()) continue;
    seen.push_back(memory);
    firsts.push_back(array.get());
  }
  return firsts;
}

}  // namespace ciranda::mxnet
