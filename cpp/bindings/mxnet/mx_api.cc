#include "bindings/mxnet/mx_api.hpp"

#include <ciranda/native/symbols.hpp>

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
  (void)native::find_symbols(library, "MXNet", version,
                             {wanted("_ZNK5mxnet7NDArray20Reorder2DefaultAsyncEv", found.Reorder2DefaultAsync)});
  return "";
}

Array share(ArrayHandle array) {
  ArrayHandle copy = nullptr;
  if (mx().ShallowCopyNDArray(array, &copy) != 0) return nullptr;
  return Array(copy);
}

}  // namespace ciranda::mxnet
