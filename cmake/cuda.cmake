# Owns: whether the CUDA backend is built, and with what. Sets FSDPC_HAVE_CUDA, and the interface library cuda_headers:
# the toolkit's headers, NCCL's, cuBLASLt's, and the CUDA runtime as a static library. cuBLASLt and NCCL themselves are
# loaded at run time, so a machine without them, or without a driver, runs everything else.
set(FSDPC_HAVE_CUDA OFF)
set(FSDPC_CUDA_ARCHITECTURES "80-real;90-real;100" CACHE STRING "GPU architectures to compile for")

function(cuda_unavailable why)
  if(FSDPC_CUDA STREQUAL "ON")
    message(FATAL_ERROR "FSDPC_CUDA=ON, but ${why}")
  endif()
  message(STATUS "CUDA backend: not built (${why}); runs on CPUs are complete without it")
endfunction()

require_choice(FSDPC_CUDA)
if(FSDPC_CUDA STREQUAL "OFF")
  return()
endif()

if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(FSDPC_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(FSDPC_NVCC)
    set(CMAKE_CUDA_COMPILER ${FSDPC_NVCC})
  endif()
endif()
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  cuda_unavailable("nvcc was not found: install the CUDA toolkit, or set CUDA_HOME to its folder")
  return()
endif()
set(CMAKE_CUDA_ARCHITECTURES ${FSDPC_CUDA_ARCHITECTURES})
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)

# Folders of pip's nvidia packages, where the headers often are when the toolkit has none.
execute_process(
  COMMAND python3 -c "import importlib.util as u; print(list(u.find_spec('nvidia').submodule_search_locations)[0])"
  OUTPUT_VARIABLE FSDPC_PIP_NVIDIA OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
find_path(FSDPC_NCCL_INCLUDE nccl.h
  HINTS ${CUDAToolkit_INCLUDE_DIRS} ENV NCCL_HOME ENV NCCL_ROOT ${FSDPC_PIP_NVIDIA}/nccl ${FSDPC_PIP_NVIDIA}/cu13 PATH_SUFFIXES include)
find_path(FSDPC_CUBLAS_INCLUDE cublasLt.h
  HINTS ${CUDAToolkit_INCLUDE_DIRS} ${FSDPC_PIP_NVIDIA}/cublas ${FSDPC_PIP_NVIDIA}/cu13 PATH_SUFFIXES include)
find_path(FSDPC_CUDNN_INCLUDE cudnn.h
  HINTS ${CUDAToolkit_INCLUDE_DIRS} ${FSDPC_PIP_NVIDIA}/cudnn ENV CUDNN_HOME PATH_SUFFIXES include)
if(NOT FSDPC_NCCL_INCLUDE)
  cuda_unavailable("nccl.h was not found: install libnccl-dev, or pip install nvidia-nccl-cu13, or set NCCL_HOME")
  return()
endif()
file(STRINGS ${FSDPC_NCCL_INCLUDE}/nccl.h nccl_version REGEX "define NCCL_VERSION_CODE [0-9]+")
string(REGEX MATCH "[0-9]+$" nccl_version "${nccl_version}")
if(nccl_version LESS 22800)
  cuda_unavailable("${FSDPC_NCCL_INCLUDE}/nccl.h is older than NCCL 2.28, which gathers by copy engines: install a newer libnccl-dev, or set NCCL_HOME")
  return()
endif()
if(NOT FSDPC_CUBLAS_INCLUDE)
  cuda_unavailable("cublasLt.h was not found: install libcublas-dev, or pip install nvidia-cublas")
  return()
endif()

add_library(cuda_headers INTERFACE)
target_include_directories(cuda_headers SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS} ${FSDPC_NCCL_INCLUDE}
                                                         ${FSDPC_CUBLAS_INCLUDE})
if(FSDPC_CUDNN_INCLUDE)
  target_include_directories(cuda_headers SYSTEM INTERFACE ${FSDPC_CUDNN_INCLUDE})
else()
  message(STATUS "CUDA backend: without cuDNN (cudnn.h was not found: pip install nvidia-cudnn-cu13): attention uses own kernels")
endif()
target_compile_definitions(cuda_headers INTERFACE FSDPC_HAVE_CUDA=1)
target_link_libraries(cuda_headers INTERFACE CUDA::cudart_static)
set(FSDPC_HAVE_CUDA ON)
# Where libraries are looked for at run time besides the loader's own folders.
set(folders ${CUDAToolkit_LIBRARY_DIR})
if(FSDPC_PIP_NVIDIA)
  list(APPEND folders ${FSDPC_PIP_NVIDIA}/cu13/lib ${FSDPC_PIP_NVIDIA}/cublas/lib ${FSDPC_PIP_NVIDIA}/nccl/lib
       ${FSDPC_PIP_NVIDIA}/cudnn/lib)
endif()
list(JOIN folders ":" FSDPC_CUDA_LIBRARY_PATH)
message(STATUS "CUDA backend: ${CMAKE_CUDA_COMPILER_VERSION} for ${FSDPC_CUDA_ARCHITECTURES}, NCCL from ${FSDPC_NCCL_INCLUDE}")
