// The driver's own types, under the names that they have in the engine's declarations of the driver API.
#pragma once

#include "backend/cuda/driver_api.hpp"

namespace ciranda::fakes {

using cuda::CUcontext;
using cuda::CUdevice;
using cuda::CUdevice_attribute;
using cuda::CUdeviceptr;
using cuda::CUevent;
using cuda::CUfunction;
using cuda::CUgraph;
using cuda::CUhostFn;
using cuda::CUipcMemHandle;
using cuda::CUmemoryPool;
using cuda::CUmemorytype;
using cuda::CUmemPool_attribute;
using cuda::CUmemPoolProps;
using cuda::CUmodule;
using cuda::CUpointer_attribute;
using cuda::CUresult;
using cuda::CUstream;
using cuda::CUuserObject;
using cuda::CUuuid;

using CUgraphExec = struct CUgraphExec_st*;  // a program's own: the engine instantiates no graph

}  // namespace ciranda::fakes
