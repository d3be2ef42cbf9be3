#include "bindings/mxnet/mx_api.hpp"

#include <algorithm>
#include <ciranda/native/symbols.hpp>
#include <utility>

namespace ciranda::mxnet {

namespace {

MxApi found;

}  // namespace

const MxApi& mx() { return found; }

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
  return "";
}

Array share(ArrayHandle array) {
  ArrayHandle copy = nullptr;
  if (mx().ShallowCopyNDArray(array, &copy) != 0) return nullptr;
  return Array(copy);
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
