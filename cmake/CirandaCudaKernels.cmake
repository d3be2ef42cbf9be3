# ciranda_cuda_images(<output variable>): the source that defines image_for() of backend/cuda/kernels/images.hpp, with
# the kernels compiled by NVRTC, or without any where CIRANDA_CUDA_KERNELS says so. Nothing of CUDA is linked or included.
function(ciranda_cuda_images output)
  set(kernels ${PROJECT_SOURCE_DIR}/cpp/backend/cuda/kernels)
  set(${output} ${kernels}/no_images.cc PARENT_SCOPE)
  if(CIRANDA_CUDA_KERNELS STREQUAL "OFF")
    return()
  endif()
  set(nvrtc)
  ciranda_find_nvrtc(nvrtc python make_cubins)
  if(NOT nvrtc)
    if(CIRANDA_CUDA_KERNELS STREQUAL "ON")
      message(FATAL_ERROR "CIRANDA_CUDA_KERNELS=ON needs NVRTC 12: pip install nvidia-cuda-nvrtc-cu12, or name libnvrtc.so.12 in CIRANDA_NVRTC")
    endif()
    message(STATUS "GPU kernels: left out, as no NVRTC 12 is found")
    return()
  endif()
  set(architectures)
  if(CIRANDA_CUDA_ARCHITECTURES)
    set(architectures --architectures ${CIRANDA_CUDA_ARCHITECTURES})
  endif()
  message(STATUS "GPU kernels: by ${nvrtc}")
  set(images ${CMAKE_CURRENT_BINARY_DIR}/cuda_images.bin)
  file(GLOB inputs CONFIGURE_DEPENDS ${kernels}/*.inc)
  add_custom_command(OUTPUT ${images}
    COMMAND ${python} ${make_cubins} ${images} --nvrtc ${nvrtc} --jobs 2 ${architectures}
    DEPENDS ${make_cubins} ${inputs} ${kernels}/arguments.hpp
    COMMENT "Compiling the GPU kernels"
    VERBATIM)
  set_source_files_properties(${kernels}/embedded_images.cc PROPERTIES
    COMPILE_DEFINITIONS "CIRANDA_CUDA_IMAGES=\"${images}\""
    OBJECT_DEPENDS ${images})
  set(${output} ${kernels}/embedded_images.cc PARENT_SCOPE)
endfunction()

# ciranda_find_nvrtc(<nvrtc> <python> <make_cubins>): the path of NVRTC, empty if there is none, and how to use it.
function(ciranda_find_nvrtc nvrtc python make_cubins)
  set(interpreter ${Python_EXECUTABLE})
  if(NOT interpreter)
    find_program(CIRANDA_PYTHON3 python3)
    set(interpreter ${CIRANDA_PYTHON3})
  endif()
  set(script ${PROJECT_SOURCE_DIR}/tools/make_cubins.py)
  set(found)
  if(interpreter)
    set(named)
    if(CIRANDA_NVRTC)
      set(named --nvrtc ${CIRANDA_NVRTC})
    endif()
    execute_process(COMMAND ${interpreter} ${script} --find ${named} OUTPUT_VARIABLE found
      OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  endif()
  set(${nvrtc} ${found} PARENT_SCOPE)
  set(${python} ${interpreter} PARENT_SCOPE)
  set(${make_cubins} ${script} PARENT_SCOPE)
endfunction()
