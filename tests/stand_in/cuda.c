/* The CUDA runtime as ONNX Runtime's CUDA provider calls it, on a machine without a GPU.

   Memory is the host's, and kernels do nothing. What can be seen with it: which operators the
   provider takes, what it allocates, that a capture makes no call that CUDA forbids meanwhile, in
   which order everything is launched (streams.c), and what the host needs for a step. What is
   computed is garbage. build.py adds a function that returns 0 for everything else that is asked for.

   STAND_IN_BYTES is the memory of the GPU, STAND_IN_SM its compute capability (90 by default), and
   STAND_IN_CUDNN the version of cuDNN (91000). What is forbidden or fails goes to standard error. */

#include "stand_in.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MOST_BLOCKS = 1 << 16 };
static struct { char *start; size_t size; int on_device; } blocks[MOST_BLOCKS];
static int num_blocks;
static size_t used, total = (size_t)100 << 30;
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local cudaError_t last_error;

/* Of each compute capability: kilobytes of shared memory that a block may ask for. */
static const struct { int sm, shared_kib; } known[] = {
    {70, 96}, {75, 64}, {80, 163}, {86, 99}, {89, 99}, {90, 227}, {100, 227}, {120, 99}};
static int sm = 90, shared_kib = 227;

__attribute__((constructor)) static void begin(void) {
  const char *bytes = getenv("STAND_IN_BYTES"), *asked = getenv("STAND_IN_SM");
  if (bytes) total = strtoull(bytes, NULL, 10);
  if (!asked) return;
  for (int i = 0; i < sizeof known / sizeof *known; i++)
    if (known[i].sm == (sm = atoi(asked))) shared_kib = known[i].shared_kib;
}

cudaError_t fail(cudaError_t error) { return last_error = error; }

/* --- memory --- */

static cudaError_t take(void **pointer, size_t size, int on_device) {
  cudaError_t error = cudaErrorMemoryAllocation;
  pthread_mutex_lock(&lock);
  if ((!on_device || size <= total - used) && num_blocks < MOST_BLOCKS) {
    *pointer = mmap(NULL, size ? size : 1, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (*pointer != MAP_FAILED) {
      blocks[num_blocks].start = *pointer;
      blocks[num_blocks].size = size;
      blocks[num_blocks++].on_device = on_device;
      if (on_device) used += size;
      error = cudaSuccess;
    }
  }
  pthread_mutex_unlock(&lock);
  return error ? fail(error) : error;
}

static cudaError_t give_back(void *pointer) {
  pthread_mutex_lock(&lock);
  for (int i = 0; pointer && i < num_blocks; i++) {
    if (blocks[i].start != pointer) continue;
    if (blocks[i].on_device) used -= blocks[i].size;
    munmap(pointer, blocks[i].size ? blocks[i].size : 1);
    blocks[i] = blocks[--num_blocks];
    break;
  }
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}

enum place place_of(const void *pointer) {
  enum place found = PAGEABLE;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < num_blocks && found == PAGEABLE; i++) {
    const char *start = blocks[i].start;
    if ((const char *)pointer >= start && (const char *)pointer < start + blocks[i].size)
      found = blocks[i].on_device ? ON_DEVICE : PINNED;
  }
  pthread_mutex_unlock(&lock);
  return found;
}

cudaError_t cudaMalloc(void **pointer, size_t size) {
  NOT_WHILE_CAPTURING;
  return take(pointer, size, 1);
}
cudaError_t cudaHostAlloc(void **pointer, size_t size, unsigned flags) {
  NOT_WHILE_CAPTURING;
  return take(pointer, size, 0);
}
cudaError_t cudaMallocHost(void **pointer, size_t size) {
  NOT_WHILE_CAPTURING;
  return take(pointer, size, 0);
}
cudaError_t cudaFree(void *pointer) {
  NOT_WHILE_CAPTURING;
  do_all();
  return give_back(pointer);
}
cudaError_t cudaFreeHost(void *pointer) {
  NOT_WHILE_CAPTURING;
  do_all();
  return give_back(pointer);
}
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
  *free_bytes = total - used;
  *total_bytes = total;
  return cudaSuccess;
}
/* --- what kernels may ask for --- */

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function) {
  memset(attributes, 0, sizeof *attributes);
  attributes->numRegs = 64;
  attributes->maxThreadsPerBlock = 1024;
  attributes->binaryVersion = attributes->ptxVersion = sm;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks_, const void *function,
                                                                   int size, size_t shared,
                                                                   unsigned flags) {
  *blocks_ = 2;
  return cudaSuccess;
}

/* --- the device: as large as an H200, as far as it is asked --- */

cudaError_t cudaSetDevice(int index) { return index ? fail(cudaErrorInvalidDevice) : cudaSuccess; }
cudaError_t cudaGetDevice(int *index) { return *index = 0, cudaSuccess; }
cudaError_t cudaGetDeviceCount(int *count) { return *count = 1, cudaSuccess; }
cudaError_t cudaDriverGetVersion(int *version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *of, int index) {
  memset(of, 0, sizeof *of);
  strcpy(of->name, "stand-in");
  of->totalGlobalMem = total;
  of->major = sm / 10;
  of->minor = sm % 10;
  of->warpSize = 32;
  of->multiProcessorCount = 132;
  of->maxThreadsPerBlock = of->maxThreadsDim[0] = of->maxThreadsDim[1] = 1024;
  of->maxThreadsDim[2] = 64;
  of->maxGridSize[0] = 2147483647;
  of->maxGridSize[1] = of->maxGridSize[2] = 65535;
  of->maxThreadsPerMultiProcessor = 2048;
  of->regsPerBlock = of->regsPerMultiprocessor = 65536;
  of->sharedMemPerBlock = 49152;
  of->sharedMemPerBlockOptin = shared_kib << 10;
  of->sharedMemPerMultiprocessor = (shared_kib + 1) << 10;
  of->l2CacheSize = 60 << 20;
  of->unifiedAddressing = of->concurrentKernels = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int index) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = sm / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = sm % 10; break;
    case cudaDevAttrMultiProcessorCount: *value = 132; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 49152; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = shared_kib << 10; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = (shared_kib + 1) << 10; break;
    default: *value = 1;
  }
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *of, const void *pointer) {
  memset(of, 0, sizeof *of);
  static const enum cudaMemoryType types[] = {
      [PAGEABLE] = cudaMemoryTypeUnregistered, [PINNED] = cudaMemoryTypeHost,
      [ON_DEVICE] = cudaMemoryTypeDevice};
  of->type = types[place_of(pointer)];
  of->devicePointer = (void *)pointer;
  return cudaSuccess;
}

/* --- errors --- */

cudaError_t cudaPeekAtLastError(void) { return last_error; }
cudaError_t cudaGetLastError(void) {
  cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
const char *cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "an error of the stand-in";
}
const char *cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "an error of the stand-in";
}
static int nothing(void) { return 0; }
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result) {
  *function = (void *)nothing;
  if (result) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
